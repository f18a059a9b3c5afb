"""`tune.load`: the results of an earlier run, without its code."""

from __future__ import annotations

import os
from typing import Any

from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import known_uri
from holdfast.experiment.records.place import address_of
from holdfast.results.reading import find_enclosing, warn_of
from holdfast.results.result_grid import ResultGrid, results_of
from holdfast.results.short_errors import short_errors
from holdfast.trial.config import RunConfig


@short_errors
def load(
    path: str | os.PathLike[str] | RunConfig,
    storage_filesystem: Any = None,
    *,
    run: int | None = None,
) -> ResultGrid:
    """The results of the experiment at `path`, as `fit()` returned them.

    `path` is the experiment's directory `<storage_path>/<name>`, its URI with the query that
    `storage_path` had, a path in `storage_filesystem`, a `Result.path` in a bucket that was used
    last, or the RunConfig, with a name, that the experiment began with. For a trial's `uri` the
    grid has that trial only. Of several runs under one name the newest is read, or number `run`
    (from 1).

    It needs neither the experiment's code nor a right to write: nothing is locked, changed or
    unpickled. A value in a config that is not plain data is a placeholder, whose `load()`
    unpickles it. The experiment may be running: the grid has what is recorded now. An experiment
    in storage is read from its newest publication, or from the tree on this machine if that is no
    older.

    Raises ExperimentNotFound, InvalidConfig (NoSuchRun, for one), StorageError.
    """
    settings = Settings.read(os.environ)
    address, filesystem = address_of(path, storage_filesystem, settings)
    if filesystem is None and "://" not in address:
        address = known_uri(os.environ, address)
    found = find_enclosing(address, settings, os.environ, run, filesystem=filesystem)
    warn_of(found.location, found.notices)
    return results_of(found)
