"""Finds an experiment that the user named, and reads its newest records, here or in storage.

It may be running, or belong to another user: nothing is locked, written or unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.experiment.doctor.target import find_target
from holdfast.experiment.folder.layout import HEAD, Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.opened import has_all, read_head
from holdfast.experiment.records.place import ExperimentPlace, followed, split
from holdfast.experiment.records.recovery import NothingToRestore
from holdfast.experiment.records.snapshots import snapshot_names
from holdfast.experiment.records.view import ExperimentView
from holdfast.experiment.results.read_experiment import (
    ExperimentNotFound,
    KeptRecords,
    NeverBegun,
    read_records,
    read_tree,
)
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.segment import segments
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo
from holdfast.syncer.uploader.lock import current_holder
from holdfast.trial.errors import TuneError

_LEVELS = 2  # <experiment>/<trial>/<checkpoint>


def find(
    path: str,
    settings: Settings,
    environ: Mapping[str, str],
    run: int | None = None,
    *,
    filesystem: Any = None,
    asks: bool = True,
    kept: KeptRecords | None = None,
) -> ExperimentView:
    """Read the experiment at `path`: its directory, a URI as `storage_path` takes it, or a path in
    `filesystem`.

    Reads the newest run of that name, or run number `run` (from 1). Of a directory that is
    uploaded to a storage, the state in storage is read if that is newer, unless `asks` is False,
    or the storage does not answer. Records in storage are downloaded to `kept`, if given.

    Raises ExperimentNotFound, InvalidLocation, StorageError, OSError.
    """
    location = Location.resolve(path, filesystem, {})
    if (here := location.local_path) is not None:
        target = find_target(here, None, settings, environ)
    else:
        try:
            target = find_target(path, None, settings, environ, filesystem=filesystem)
        except ExperimentNotFound:  # nothing is published there: it may be a copy of a local tree
            return _in_storage(location, run, kept)
    if target.layout is None:
        return _in_storage(location, run, kept)
    holder = current_holder(target.layout.lock)
    if target.remote is not None and not holder and not _is_newest(target.layout, target.remote):
        return _in_storage(target.remote, run, kept)
    notices: list[str] = []
    storage = None
    if target.remote is None:
        storage = storage_of(target.layout, location, settings, environ)
    if storage is not None and asks and not holder and _is_own(target.layout):
        newer, notices = _newer(target.layout, storage, run)
        if newer is not None:
            return newer
    read = read_tree(target.layout, target.remote or location, run)
    # The process with the lock runs the newest one.
    holder = "" if read.is_followed else holder
    return replace(
        read,
        shown=_shown(path, location),
        notices=(*read.notices, *notices),
        holder=holder,
        storage="" if storage is None else storage.public,
    )


def storage_of(
    layout: Layout, location: Location, settings: Settings, environ: Mapping[str, str]
) -> Location | None:
    """The storage that this tree is uploaded to, without asking it.

    None for a copy of such a tree, for any other, and if only a filesystem object reaches it.
    """
    here = ExperimentPlace(name=layout.root.name, layout=layout, location=location, remote=None)
    try:
        return followed(here, settings, environ)[0].remote
    except (TuneError, OSError):
        return None


def with_storage(
    experiment: ExperimentView, settings: Settings, environ: Mapping[str, str]
) -> ExperimentView:
    """The experiment; files that its tree on this machine lacks are read from its storage, if this
    user's run uploads the tree there. Nodes send their trials' files only there."""
    layout = experiment.layout
    if not experiment.storage or layout is None or not _is_own(layout):
        return experiment
    storage = storage_of(layout, experiment.location, settings, environ)
    if storage is None:
        return experiment
    return replace(experiment, location=storage)


def is_copy(
    layout: Layout, location: Location, settings: Settings, environ: Mapping[str, str]
) -> bool:
    """Whether this is a copy of a tree that is uploaded to a storage."""
    here = ExperimentPlace(name=layout.root.name, layout=layout, location=location, remote=None)
    try:
        place, note = followed(here, settings, environ)
    except (TuneError, OSError):
        return False
    return note is not None and place is here


def _is_own(layout: Layout) -> bool:
    """Whether this user wrote the note. What another user wrote makes no request."""
    try:
        return layout.mirror_at.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _newer(
    layout: Layout, storage: Location, run: int | None
) -> tuple[ExperimentView | None, list[str]]:
    """The experiment in storage if its state is newer than the tree's; and notices."""
    try:
        if _is_newest(layout, storage):
            return None, []
        found = _in_storage(storage, run)
    except (StorageError, ExperimentNotFound) as error:
        return None, [f"{storage} may have a newer state, but did not answer: {error}"]
    notice = f"{storage} has a newer state than {layout.root}, and is shown here"
    return replace(found, notices=(*found.notices, notice)), []


def find_enclosing(
    path: str,
    settings: Settings,
    environ: Mapping[str, str],
    run: int | None = None,
    *,
    filesystem: Any = None,
) -> ExperimentView:
    """As `find`. The path of a trial's folder, or of a checkpoint in it, finds its experiment, of
    which the results have `only` that trial."""
    try:
        return find(path, settings, environ, run, filesystem=filesystem)
    except NeverBegun:
        raise
    except ExperimentNotFound:
        above = path
        for _ in range(_LEVELS):
            try:
                above, name = split(above, filesystem)
                if not _may_enclose(above, filesystem):
                    continue
                found = find(above, settings, environ, run, filesystem=filesystem)
            except (ExperimentNotFound, NothingToRestore):
                continue
            trials = found.machine.trials.values()
            ids = [trial.trial_id for trial in trials if trial.spec.dirname == name]
            if ids:
                return replace(found, only=ids[0])
            break
        raise


def _may_enclose(path: str, filesystem: Any) -> bool:
    """Whether a folder that the user has not named has records of an experiment. In storage, only
    reading it shows that."""
    here = Location.resolve(path, filesystem, {}).local_path
    if here is None:
        return True
    layout = Layout(Path(here))
    has_head = (layout.root / HEAD).exists()
    return has_head or bool(segments(layout.journal)) or bool(snapshot_names(layout.root))


def _in_storage(
    location: Location, run: int | None, kept: KeptRecords | None = None
) -> ExperimentView:
    is_kept = kept is not None and run is None and location.local_path is None
    read = kept.read(location) if kept and is_kept else read_records(location, run)
    head = published_as(location)
    heard_at = None if head is None else head.modified
    return replace(read, shown=location.public, heard_at=heard_at)


def published_as(location: Location) -> ObjectInfo | None:
    """The head in storage, which changes with each publication. Raises StorageError."""
    return with_store(location, lambda store: store.head(HEAD))


def _is_newest(layout: Layout, remote: Location) -> bool:
    """Whether the tree on this machine has all published records, or another machine has more."""
    head = with_store(remote, read_head)
    return head is None or has_all(layout, head)


def _shown(path: str, location: Location) -> str:
    return path if location.local_path is not None and "://" not in path else location.public
