"""What the doctor examines: the tree on this machine, its storage, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import HEAD, Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal import traces_in
from holdfast.experiment.records.opened import OpenedExperiment, read_head
from holdfast.experiment.records.place import is_mirror_of
from holdfast.experiment.records.recovery import NothingToRestore
from holdfast.experiment.records.snapshots import snapshot_names
from holdfast.experiment.results.read_experiment import (
    ExperimentNotFound,
    NeverBegun,
    not_found,
)
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.journal.segment import segments
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import read_note
from holdfast.trial.errors import TuneError


class WrongStorage(TuneError, ValueError):
    """The storage given is not the one that the tree is uploaded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorTarget:
    """One experiment.

    `layout` is its tree on this machine, None if there is none. `remote` is its storage elsewhere;
    None if it has none or it was not given: then `kept_in` says where it is.
    """

    shown: str
    layout: Layout | None
    remote: Location | None
    kept_in: str = ""


def find_target(
    path: str,
    storage: str | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    filesystem: Any = None,
) -> DoctorTarget:
    """Find the experiment that the user named by a directory, a URI or a path in `filesystem`.

    A local tree stores the address of its storage, but not the credentials: `storage` has them.
    Raises InvalidLocation, WrongStorage, ExperimentNotFound, StorageError.
    """
    location = Location.resolve(path, filesystem, {})
    if location.local_path is None or (Path(location.local_path) / HEAD).exists():
        return _of_storage(path, filesystem, location, settings, environ)
    layout = Layout(Path(location.local_path))
    has_records = segments(layout.journal) or snapshot_names(layout.root)
    if not has_records and not traces_in(layout.root):
        if layout.lock.exists():
            raise NeverBegun.at(path, layout)
        raise ExperimentNotFound(not_found(location), path)
    kept_in = read_note(layout.mirror_of) if layout.mirror_of.exists() else ""
    remote = _named_storage(layout, storage, kept_in)
    return DoctorTarget(
        shown=path, layout=layout, remote=remote, kept_in="" if remote is not None else kept_in
    )


def _named_storage(layout: Layout, storage: str | None, kept_in: str) -> Location | None:
    if storage is None:
        return None
    remote = Location.resolve(storage, None, {})
    if kept_in and is_mirror_of(layout, remote):
        return remote
    where = f"persisted in {kept_in}" if kept_in else "not persisted elsewhere"
    raise WrongStorage(f"{layout.root} is {where}, not in {remote.public}")


def _of_storage(
    path: str,
    filesystem: Any,
    location: Location,
    settings: Settings,
    environ: Mapping[str, str],
) -> DoctorTarget:
    """An experiment in storage; its tree on this machine is found as a restore finds it."""
    try:
        place = OpenedExperiment.at(path, filesystem, settings, environ).place
    except NothingToRestore as error:
        raise ExperimentNotFound(str(error), location.public) from error
    if place.remote is not None and segments(place.layout.journal):
        return DoctorTarget(shown=location.public, layout=place.layout, remote=place.remote)
    if with_store(location, read_head) is None:
        raise ExperimentNotFound(
            f"there is no experiment at {location.public}: it has no journal. Pass "
            "<storage_path>/<name>, with the query of the storage_path",
            location.public,
        )
    return DoctorTarget(shown=location.public, layout=None, remote=location)
