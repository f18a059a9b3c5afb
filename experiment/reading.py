"""Reading an experiment without locking or changing it: its snapshots and journal, here or far."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.experiment.layout import HEAD, JOURNAL, SNAPSHOT_PREFIX, Layout
from holdfast.experiment.recovery import NothingToRestore, recover
from holdfast.experiment.trial_folder import list_folder, read_file
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal import segments
from holdfast.syncer.location import Location
from holdfast.trial.errors import TuneError

if TYPE_CHECKING:
    import pyarrow.fs

_log = logging.getLogger(__name__)
_READERS = 8


class ExperimentNotFound(TuneError, ValueError):
    """There is no experiment at `path`, or none whose state can be read."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadExperiment:
    """An experiment as its records tell it; `layout` is None where it is not on this machine."""

    machine: Machine
    location: Location
    layout: Layout | None


def load_experiment(
    path: str | os.PathLike[str], filesystem: pyarrow.fs.FileSystem | None = None
) -> ReadExperiment:
    """Fold the newest experiment in a directory from its snapshots and journal.

    Nothing is locked or written there, so it may be running. A remote one's records are fetched
    into a temporary directory first. Raises ExperimentNotFound, StorageError.
    """
    location = Location.resolve(path, filesystem, {})
    if location.local_path is not None:
        layout = Layout(Path(location.local_path))
        machine = _fold(layout, location)
        return ReadExperiment(machine=machine, location=location, layout=layout)
    with _fetched(location) as root:
        machine = _fold(Layout(root), location)
    return ReadExperiment(machine=machine, location=location, layout=None)


def _fold(layout: Layout, location: Location) -> Machine:
    try:
        recovered = recover(layout)
    except NothingToRestore as error:
        raise ExperimentNotFound(_not_found(layout, location), location.public) from error
    for notice in recovered.notices:
        _log.info("%s: %s", location, notice)
    return recovered.machine


def _not_found(layout: Layout, location: Location) -> str:
    if segments(layout.journal):
        return f"the journal of the experiment at {location} has no readable beginning"
    return (
        f"there is no experiment at {location}: it has no folder {JOURNAL!r} with records. Give "
        f"the directory <storage_path>/<name>, and the storage_filesystem if one was used"
    )


@contextmanager
def _fetched(location: Location) -> Iterator[Path]:
    """A temporary directory with an experiment's snapshots and journal."""
    names = [name for name in list_folder(location) if name.startswith(SNAPSHOT_PREFIX)]
    names += _journal_names(location)
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    with (
        tempfile.TemporaryDirectory(prefix="holdfast-state-") as folder,
        ThreadPoolExecutor(_READERS, "holdfast-read") as pool,
    ):
        root = Path(folder)
        (root / JOURNAL).mkdir()
        found = pool.map(lambda name: read_file(location, name), names)
        for name, data in zip(names, found, strict=True):
            if data is not None:  # None: replaced by a newer one since it was listed
                (root / name).write_bytes(data)
        yield root


def _journal_names(location: Location) -> list[str]:
    """The segments that the head names, for it is put last; all, in a copy without a head."""
    head = read_file(location, HEAD)
    if head is None:
        return [f"{JOURNAL}/{name}" for name in list_folder(location.child(JOURNAL))]
    return [f"{JOURNAL}/{segment['name']}" for segment in json.loads(head)["segments"]]
