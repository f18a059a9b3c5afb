"""Finds an experiment that the user named, and reads its newest records, here or in storage.

It may be running, or belong to another user: nothing is locked, written or unpickled. What is in
storage is read by way of a temporary directory.

`find` and `find_enclosing` take what the user typed, `load_experiment` what a script passes,
`read_records` a location, and `read_tree` a folder on this machine; `find_site` only says where
the experiment is.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.contents import experiments_in, names_like
from holdfast.experiment.folder.layout import HEAD, JOURNAL, RESULTS, SNAPSHOT_PREFIX, Layout
from holdfast.experiment.folder.nodes_file import read_news
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.trial_folder import list_folder
from holdfast.experiment.records.journal import (
    JournalUnreadable,
    chapters,
    find_beginning,
    read_segments,
    runs_known_before,
    traces_in,
)
from holdfast.experiment.records.opened import (
    OpenedExperiment,
    fetch_earlier,
    has_all,
    read_head,
    refresh_journal,
)
from holdfast.experiment.records.place import followed, is_mirror_of, split
from holdfast.experiment.records.recovery import NothingToRestore, recover
from holdfast.experiment.records.snapshots import snapshot_names
from holdfast.experiment.records.view import ExperimentView
from holdfast.names import printable
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import NotStored, StorageError
from holdfast.syncer.journal.segment import Position, readable_end, segment_name, segments
from holdfast.syncer.journal.stretches import segment_size
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo, Store, for_each, read_note
from holdfast.syncer.uploader.lock import current_holder
from holdfast.text.values import size
from holdfast.trial.errors import TuneError

if TYPE_CHECKING:
    import pyarrow.fs


_log = logging.getLogger(__name__)
_READERS = 8
# A journal of this many bytes has about 150,000 rows and is read in 0.1 s. Of a larger one, only
# the part after the snapshot is read; the doctor checks the rest.
_MOST_BYTES = 32 << 20


class ExperimentNotFound(TuneError, ValueError):
    """There is no experiment at `path`, or its state cannot be read."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class NeverBegun(ExperimentNotFound):
    """A run started there and has no record: it ended before its first one, or it is starting."""

    @classmethod
    def at(cls, path: str, layout: Layout) -> NeverBegun:
        if current_holder(layout.lock):
            waiting = printable(read_news(layout).waiting)
            why = (
                f", as it waits for nodes: {waiting}"
                if waiting
                else ". With nodes, the first comes when one has joined"
            )
            return RunStarts(f"the run in {path} is starting: it has no record yet{why}", path)
        return cls(
            f"the run in {path} ended before its first record: no trial had begun, and nothing is "
            f"lost. Start the script again",
            path,
        )


class RunStarts(NeverBegun):
    """A process holds the lock, and has yet to write the first record; `state` says what it waits
    for."""

    def __init__(self, state: str, path: str) -> None:
        super().__init__(f"{state}. `holdfast show --watch` waits for it", path)
        self.state = state


def load_experiment(
    path: str | os.PathLike[str],
    filesystem: pyarrow.fs.FileSystem | None = None,
    run: int | None = None,
) -> ExperimentView:
    """Read the newest experiment in a directory, or run number `run`; log what cannot be read.

    Raises ExperimentNotFound, StorageError.
    """
    location = Location.resolve(path, filesystem, {})
    read = read_records(location, run)
    warn_of(location, read.notices)
    return read


def warn_of(location: Location, notices: Iterable[str]) -> None:
    """Log what could not be read; a script without logging sees it on stderr."""
    for notice in notices:
        _log.warning("%s", printable(f"{location}: {notice}"))


@contextmanager
def records_of(
    path: str | os.PathLike[str], filesystem: pyarrow.fs.FileSystem | None = None
) -> Iterator[Layout]:
    """The experiment's records on this machine; downloaded if they are elsewhere.

    Raises ExperimentNotFound, StorageError.
    """
    location = Location.resolve(path, filesystem, {})
    with closing(KeptRecords()) as kept:
        here = location.local_path
        layout = kept.download(location) if here is None else Layout(Path(here))
        try:
            beginning = find_beginning(layout.journal)
        except JournalUnreadable as error:
            raise error.at(location.public) from error
        if beginning is None:
            raise _no_experiment(layout, location)
        warn_of(location, _damages(layout, beginning.position.segment))
        yield layout


def read_tree(
    layout: Layout, location: Location, run: int | None = None, *, is_download: bool = False
) -> ExperimentView:
    """Read the local tree of an experiment whose storage is `location`, or what was downloaded
    from there.

    Nothing is locked or written. Raises ExperimentNotFound, OSError.
    """
    try:
        view = recover(layout, run=run, location=location)
    except NothingToRestore:  # it names the folder of a download
        raise _no_experiment(layout, location) from None
    except JournalUnreadable as error:
        raise error.at(location.public) from error
    # The process with the lock runs the newest one.
    may_run = not is_download and not view.is_followed
    return replace(
        view,
        layout=None if is_download else layout,
        holder=current_holder(layout.lock) if may_run else "",
        notices=(*view.notices, *_damages(layout, view.begins, view.end)),
        runs_before=runs_known_before(layout.journal, view.begins),
    )


def read_records(
    location: Location, run: int | None = None, kept: KeptRecords | None = None
) -> ExperimentView:
    """Read the experiment at `location`; what is in remote storage is downloaded to `kept`, or to
    a temporary directory.

    Raises ExperimentNotFound, StorageError, OSError.
    """
    if location.local_path is not None:
        read = read_tree(Layout(Path(location.local_path)), location, run)
    elif kept is not None:
        read = read_tree(kept.download(location, run), location, run, is_download=True)
    else:
        with closing(KeptRecords()) as kept:
            return read_records(location, run, kept)
    head = None if read.is_followed else published_as(location)
    return replace(read, heard_at=None if head is None else head.modified)


class KeptRecords:
    """The records of an experiment in storage, downloaded to a temporary directory `root` that is
    kept until `close`. A later download gets only what is new."""

    def __init__(self) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-state-")
        self._known: dict[str, tuple[int, int | None]] = {}
        self.root = Path(self._folder.name)

    def refresh(self, location: Location) -> None:
        """Download what is new in the journal. Raises StorageError."""
        journal = self.root / JOURNAL
        journal.mkdir(exist_ok=True)
        with_store(location, lambda store: refresh_journal(store, journal, self._known))

    def download(self, location: Location, run: int | None = None) -> Layout:
        """Download what is new, and the newest snapshots; with a `run`, the journals of all runs
        of this name. Raises StorageError."""
        names = [name for name in list_folder(location) if name.startswith(SNAPSHOT_PREFIX)]
        self.refresh(location)
        if run is not None:
            with_store(location, lambda store: fetch_earlier(store, self.root / JOURNAL))
        for name in snapshot_names(self.root):
            (self.root / name).unlink()
        with_store(location, lambda store: _fetch_snapshots(store, names, self.root))
        return Layout(self.root)

    def close(self) -> None:
        """Remove the directory."""
        self._folder.cleanup()


def _no_experiment(layout: Layout, location: Location) -> ExperimentNotFound:
    if segments(layout.journal):
        return NeverBegun.at(location.public, layout)
    return ExperimentNotFound(not_found(location), location.public)


def not_found(location: Location) -> str:
    """The message of an ExperimentNotFound."""
    if location.local_path is not None and _holds_experiments(location.local_path):
        return (
            f"{location} is not an experiment, but a folder of experiments: pass one of them "
            f"(holdfast ls {shlex.quote(str(location))} lists them)"
        )
    if location.local_path is not None and os.path.exists(f"{location.local_path}/{RESULTS}"):
        return (
            f"{location} is the folder of a trial, without its experiment: tune.Result.from_path "
            f"reads it"
        )
    if location.local_path is not None and not os.path.lexists(location.local_path):
        place, name = os.path.split(os.path.abspath(location.local_path))
        if _holds_experiments(place):
            return (
                f"there is no experiment at {location}. {names_like(name, experiments_in(place))}"
            )
    nothing = f"there is no experiment at {location}: it has no folder {JOURNAL!r} with records"
    if location.local_path is None:
        return (
            f"{nothing}. Pass <storage_path>/<name>. A run is there once it has published "
            f"something: soon after its first checkpoint, or after `sync_period`"
        )
    return (
        f"{nothing}. Pass the directory <storage_path>/<name>, and the storage_filesystem if one "
        f"was used"
    )


def _holds_experiments(folder: str) -> bool:
    try:
        return any(experiments_in(folder))
    except OSError:
        return False


async def _fetch_snapshots(store: Store, names: Sequence[str], root: Path) -> None:
    async def fetch(name: str) -> None:
        with suppress(NotStored):  # replaced by a newer one since it was listed
            await store.get(name, root / name)

    await for_each(fetch, names, at_once=_READERS)


def _damages(layout: Layout, begins: int, end: Position | None = None) -> Iterator[str]:
    """A line for each damage in the journal of the experiment that begins in segment `begins`.

    `end` is how far it was read. While a process holds the experiment's lock, its last record may
    still be incomplete and is not mentioned. Raises OSError.
    """
    journal = layout.journal
    if end is None or not _is_read_to_its_end(journal, end):
        yield from _left_out(layout, begins)
    elif _bytes_before(journal, begins, end) <= _MOST_BYTES:
        sound = readable_end(journal, Position(begins))
        if sound < end:
            yield (
                f"{JOURNAL}/{segment_name(sound.segment)} is damaged at offset {sound.offset}. "
                f"The data shown comes from a newer snapshot, which a restore may not be able to "
                f"use. For details, run holdfast doctor"
            )


def _is_read_to_its_end(journal: Path, end: Position) -> bool:
    newest = segments(journal)[-1]
    return end.segment == newest and end.offset >= segment_size(journal, newest)


def _left_out(layout: Layout, begins: int) -> Iterator[str]:
    for chapter in chapters(read_segments(layout.journal)):
        damage = chapter.damage
        if damage is None or chapter.segments[0].number != begins:
            continue
        if not damage.is_torn:
            cannot = "cannot be used, since a segment is missing before it"
            yield (
                f"{JOURNAL}/{damage.at.name}: what follows offset {damage.offset} "
                f"{cannot if damage.is_gap else 'cannot be read'} ({size(damage.size_bytes)}) and "
                f"is left out here. For details, run holdfast doctor"
            )
        elif not current_holder(layout.lock):
            yield (
                f"{JOURNAL}/{damage.at.name} ends inside a record, at offset {damage.offset} "
                f"({size(damage.size_bytes)} is left out here). A crash in the middle of a write "
                f"leaves it so, and nothing acknowledged is lost. If nothing crashed, the file "
                f"was cut off and what followed is lost"
            )


def _bytes_before(journal: Path, begins: int, end: Position) -> int:
    between = [number for number in segments(journal) if begins <= number <= end.segment]
    return sum(segment_size(journal, number) for number in between)


class WrongStorage(TuneError, ValueError):
    """The storage given is not the one that the tree is uploaded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSite:
    """Where one experiment is.

    `layout` is its tree on this machine, None if there is none. `remote` is its storage elsewhere;
    None if it has none or it was not given: then `kept_in` says where it is.
    """

    shown: str
    layout: Layout | None
    remote: Location | None
    kept_in: str = ""


def find_site(
    path: str,
    storage: str | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    filesystem: Any = None,
) -> ExperimentSite:
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
    return ExperimentSite(
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
) -> ExperimentSite:
    """An experiment in storage; its tree on this machine is found as a restore finds it."""
    try:
        place = OpenedExperiment.at(path, filesystem, settings, environ).place
    except NothingToRestore as error:
        raise ExperimentNotFound(str(error), location.public) from error
    if place.remote is not None and segments(place.layout.journal):
        return ExperimentSite(shown=location.public, layout=place.layout, remote=place.remote)
    if with_store(location, read_head) is None:
        raise ExperimentNotFound(
            f"there is no experiment at {location.public}: it has no journal. Pass "
            "<storage_path>/<name>, with the query of the storage_path",
            location.public,
        )
    return ExperimentSite(shown=location.public, layout=None, remote=location)


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

    Reads the newest run of that name, or run number `run` (from 1). If it is both on this machine
    and in a storage, the newer state is read. A storage that `path` does not name is not asked
    unless it `asks`, and need not answer. Records in storage are downloaded to `kept`, if given.

    Raises ExperimentNotFound, InvalidLocation, StorageError, OSError.
    """
    location = Location.resolve(path, filesystem, {})
    if (here := location.local_path) is not None:
        site = find_site(here, None, settings, environ)
    else:
        try:
            site = find_site(path, None, settings, environ, filesystem=filesystem)
        except ExperimentNotFound:  # nothing is published there: it may be a copy of a local tree
            return _in_storage(location, run, kept)
    if (layout := site.layout) is None:
        return _in_storage(location, run, kept)
    storage: Location | None = None
    notices: list[str] = []
    if site.remote is not None:  # the user named it: without its answer there is no other
        if (newer := _newer(layout, site.remote, run, kept)) is not None:
            return newer
    elif (storage := _storage_of(location, settings, environ)) and asks and _is_own(layout):
        try:
            if (newer := _newer(layout, storage, run, kept)) is not None:
                notice = f"{storage} has a newer state than {layout.root}, and is shown here"
                return replace(newer, notices=(*newer.notices, notice))
        except (StorageError, ExperimentNotFound) as error:
            notices = [f"{storage} may have a newer state, but did not answer: {error}"]
    read = read_tree(layout, site.remote or location, run)
    return replace(
        read,
        shown=_shown(path, location),
        notices=(*read.notices, *notices),
        storage="" if storage is None else storage.public,
    )


def _storage_of(
    location: Location, settings: Settings, environ: Mapping[str, str]
) -> Location | None:
    """The storage that the tree at `location` is uploaded to, without asking it.

    None for a copy of such a tree, for any other, and if only a filesystem object reaches it.
    """
    try:
        place, _ = followed(location.local_path, settings, environ)
    except (TuneError, OSError):
        return None
    return None if place is None else place.remote


def with_storage(
    experiment: ExperimentView, settings: Settings, environ: Mapping[str, str]
) -> ExperimentView:
    """The experiment; files that its tree on this machine lacks are read from its storage, if this
    user's run uploads the tree there. Nodes send their trials' files only there."""
    layout = experiment.layout
    if not experiment.storage or layout is None or not _is_own(layout):
        return experiment
    storage = _storage_of(experiment.location, settings, environ)
    if storage is None:
        return experiment
    return replace(experiment, location=storage)


def is_copy(location: Location, settings: Settings, environ: Mapping[str, str]) -> bool:
    """True if this is a copy of a tree that is uploaded to a storage."""
    try:
        place, note = followed(location.local_path, settings, environ)
    except (TuneError, OSError):
        return False
    return note is not None and place is None


def _is_own(layout: Layout) -> bool:
    """True if this user wrote the note. What another user wrote makes no request."""
    try:
        return layout.mirror_at.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _newer(
    layout: Layout, storage: Location, run: int | None, kept: KeptRecords | None
) -> ExperimentView | None:
    """The experiment in storage, if its state is newer than the tree's, and no process runs it
    here."""
    if current_holder(layout.lock) or _is_newest(layout, storage):
        return None
    return _in_storage(storage, run, kept)


def find_enclosing(
    path: str,
    settings: Settings,
    environ: Mapping[str, str],
    run: int | None = None,
    *,
    filesystem: Any = None,
    kept: KeptRecords | None = None,
) -> ExperimentView:
    """As `find`. The path of a trial's folder, or of a checkpoint in it, finds its experiment, of
    which the results have `only` that trial."""
    try:
        return find(path, settings, environ, run, filesystem=filesystem, kept=kept)
    except NeverBegun:
        raise
    except ExperimentNotFound:
        above = path
        for _ in range(_LEVELS):
            try:
                above, name = split(above, filesystem)
                if not _may_enclose(above, filesystem):
                    continue
                found = find(above, settings, environ, run, filesystem=filesystem, kept=kept)
            except (ExperimentNotFound, NothingToRestore):
                continue
            trials = found.machine.trials.values()
            ids = [trial.trial_id for trial in trials if trial.spec.dirname == name]
            if ids:
                return replace(found, only=ids[0])
            break
        raise


def _may_enclose(path: str, filesystem: Any) -> bool:
    """True if a folder that the user has not named has records of an experiment. In storage, only
    reading it shows that."""
    here = Location.resolve(path, filesystem, {}).local_path
    if here is None:
        return True
    layout = Layout(Path(here))
    has_head = (layout.root / HEAD).exists()
    return has_head or bool(segments(layout.journal)) or bool(snapshot_names(layout.root))


def _in_storage(location: Location, run: int | None, kept: KeptRecords | None) -> ExperimentView:
    return replace(read_records(location, run, kept), shown=location.public)


def published_as(location: Location) -> ObjectInfo | None:
    """The head in storage, which changes with each publication. Raises StorageError."""
    return with_store(location, lambda store: store.head(HEAD))


def _is_newest(layout: Layout, remote: Location) -> bool:
    """True if the tree on this machine has all published records."""
    head = with_store(remote, read_head)
    return head is None or has_all(layout, head)


def _shown(path: str, location: Location) -> str:
    return path if location.local_path is not None and "://" not in path else location.public
