"""Opens an experiment for a run, a restore or the doctor: its lock, and what storage has of it."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Self, TypeVar

from holdfast.compat.advice import checked
from holdfast.experiment.folder.contents import check_enclosed
from holdfast.experiment.folder.layout import (
    CALLBACKS,
    HEAD,
    JOURNAL,
    SET_ASIDE,
    TRAINER,
    TUNER,
    Layout,
)
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import holdfast_command, resume_command
from holdfast.experiment.records.journal import (
    JournalStart,
    JournalUnreadable,
    check_nothing_behind,
    find_beginning,
    may_be_steered,
    runs_known_before,
)
from holdfast.experiment.records.place import (
    COPY_ADVICE,
    ExperimentPlace,
    MirrorNote,
    address_of,
    find_place,
    followed,
    mark,
    read_mirror,
    resume_hint,
    split,
)
from holdfast.experiment.records.recovery import NothingToRestore, recover
from holdfast.experiment.records.view import ExperimentView
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.names import printable
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.stopping import RESUMABLE
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import NotStored, StorageError
from holdfast.syncer.files.durable import make_folder, unique, write_atomic
from holdfast.syncer.files.tree import read_regular
from holdfast.syncer.journal.segment import segments
from holdfast.syncer.journal.stretches import (
    HEAD_BYTES,
    Stretch,
    is_here,
    is_segment,
    join_stretches,
    parse_head,
    parse_stretch_name,
    stretches_of,
)
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.preflight import when_ready
from holdfast.syncer.stores.store import ObjectInfo, Store, for_each, read_object
from holdfast.syncer.uploader.lock import ExperimentLock, Locked, is_alive
from holdfast.trees import try_to_delete
from holdfast.trial.config import RunConfig, SyncConfig
from holdfast.trial.errors import ExperimentExists, InvalidConfig, TuneError

_AT_ONCE = 16
_PARTIAL = ".partial-"


def published(remote: Location) -> dict[str, Any] | None:
    """The head in storage; None if there is none to compare the local tree with."""
    head = with_store(remote, read_head)
    return head if head is not None and head["epoch"] else None


def has_all(layout: Layout, head: Mapping[str, Any]) -> bool:
    """True if the tree here has the whole published journal."""
    return all(is_here(layout.journal, stretch) for stretch in stretches_of(head))


def fetch_state(
    layout: Layout, remote: Location, aside: Path | None = None, *, mode: int = 0o700
) -> bool:
    """Download journal and tuner.pkl; False if there is no experiment.

    They appear here only when they are complete: half a journal after a crash would look like an
    older one. The files here are moved to `aside`, if given. A folder that is created for it has
    the permissions `mode`.
    """
    root = layout.root
    staging = Layout(root.with_name(f"{root.name}{_PARTIAL}{os.getpid()}"))
    _clear_partials(root)
    try:
        make_folder(staging.root, mode)
        found: bool = with_store(remote, lambda store: _download(store, staging))
        if found:
            mark(staging, remote, root)
            if aside is not None:
                _set_aside(layout, aside)
            _move_in(staging, layout)
    finally:
        try_to_delete(staging.root)
    return found


def _clear_partials(root: Path) -> None:
    """Remove downloads whose process died, but not those of a running process."""
    start = f"{root.name}{_PARTIAL}"
    for path in root.parent.iterdir() if root.parent.exists() else ():
        pid = path.name.removeprefix(start)
        if path.name.startswith(start) and pid.isdecimal() and not _is_another(int(pid)):
            try_to_delete(path)


def _is_another(pid: int) -> bool:
    return pid != os.getpid() and is_alive(pid)


def _set_aside(layout: Layout, aside: Path) -> None:
    """Move everything except the locks, which are held, and the socket of a killed run; first the
    journal, which makes the folder an experiment."""
    aside.mkdir()
    layout.journal.rename(aside / JOURNAL)
    for path in list(layout.root.iterdir()):
        if path not in (*layout.locks, layout.control):
            path.rename(aside / path.name)


def _move_in(staging: Layout, layout: Layout) -> None:
    """Move the journal last into an existing directory: it makes the folder an experiment."""
    if not layout.root.exists():
        staging.root.rename(layout.root)
        return
    if find_beginning(layout.journal) is not None:
        return  # another process was faster
    for source, target in (
        (staging.tuner, layout.tuner),
        (staging.trainer, layout.trainer),
        (staging.callbacks, layout.callbacks),
        (staging.mirror_at, layout.mirror_at),
        (staging.mirror_of, layout.mirror_of),
    ):
        if source.exists():
            source.replace(target)
    if layout.journal.exists() and any(layout.journal.iterdir()):
        aside = layout.root.with_name(f"{layout.root.name}{SET_ASIDE}{unique()[:6]}")
        aside.mkdir()
        layout.journal.rename(aside / JOURNAL)
    staging.journal.rename(layout.journal)


async def read_head(store: Store) -> dict[str, Any] | None:
    """The published head; without a readable one, the segments in storage.

    A local experiment that was copied to storage has no head.
    """
    try:
        return parse_head(await read_object(store, HEAD, HEAD_BYTES))
    except (NotStored, ValueError):
        return listed_head(await store.list(JOURNAL))


def listed_head(entries: Iterable[ObjectInfo]) -> dict[str, Any] | None:
    """A head with all segments in storage; None if there are none."""
    found = [
        {"name": entry.name, "size": entry.size}
        for entry in entries
        if entry.key == f"{JOURNAL}/{entry.name}" and is_segment(entry.name)
    ]
    return {"epoch": "", "segments": found} if found else None


async def fetch_journal(store: Store, journal: Path) -> bool:
    """Download the published part of the journal; False if there is none. Raises StorageError."""
    try_to_delete(journal)
    os.makedirs(journal)
    found = await refresh_journal(store, journal, {})
    join_stretches(journal)
    return found


async def refresh_journal(
    store: Store, journal: Path, known: dict[str, tuple[int, int | None]]
) -> bool:
    """Bring a downloaded journal up to date: only new objects are downloaded, and their stretches
    are not joined. False if nothing is published. Raises StorageError.

    `known` has the size and checksum of each object here; it is empty at the first call. The
    folder exists. The experiment may be running: objects that a head named are removed once a
    newer head has replaced them.
    """
    head = await read_head(store)
    while head is not None:
        wanted = {one.name: one for one in stretches_of(head)}
        news = [one for one in wanted.values() if known.get(one.name) != (one.size, one.crc32)]
        try:
            await for_each(partial(_download_stretch, store, journal), news, at_once=_AT_ONCE)
        except NotStored:
            older, head = head, await read_head(store)
            if head == older:
                raise
            continue
        for name in set(os.listdir(journal)) - wanted.keys():
            (journal / name).unlink()
        known.clear()
        known.update({one.name: (one.size, one.crc32) for one in wanted.values()})
        return True
    return False


async def fetch_earlier(store: Store, journal: Path) -> None:
    """Add the segments before those that were downloaded. Raises StorageError.

    A head names only the segments of the newest experiment; those of earlier ones stay in storage.
    """
    first = min(segments(journal), default=0)
    parsed = [(parse_stretch_name(entry.name), entry.name) for entry in await store.list(JOURNAL)]
    names = [name for found, name in parsed if found is not None and found[0] < first]

    async def fetch(name: str) -> None:
        await store.get(f"{JOURNAL}/{name}", journal / name)

    await for_each(fetch, names, at_once=_AT_ONCE)


async def _download(store: Store, layout: Layout) -> bool:
    if not await fetch_journal(store, layout.journal):
        return False
    for name in (TUNER, TRAINER, CALLBACKS):
        # tuner.pkl is needed only if restore() is not passed a trainable; then its absence is
        # reported.
        with suppress(NotStored):
            write_atomic(layout.root / name, await store.read(name))
    return True


async def _download_stretch(store: Store, journal: Path, stretch: Stretch) -> None:
    """Download a stretch. Its object may be longer than the head says: the rest belongs to a newer
    head."""
    key, target = f"{JOURNAL}/{stretch.name}", journal / stretch.name
    await store.get(key, target)
    if not stretch.is_of(read_regular(target)):
        target.unlink()
        raise StorageError("read", key, "its size or checksum differs from that in the head")
    os.truncate(target, stretch.size)


R = TypeVar("R")

_log = logging.getLogger(__name__)
_STORAGE_TIMEOUT_S = SyncConfig().sync_timeout


# How long the lock waits for processes of a run whose controller is gone: a process that was just
# killed may still be ending.
_STRAGGLERS_S = 10.0


@contextmanager
def locked(
    layout: Layout, *, deadline_s: float = _STRAGGLERS_S, has_nodes: bool | None = None
) -> Iterator[ExperimentLock]:
    """Hold the lock of the experiment in this folder, after checking that no link leads out of it.

    `has_nodes`: see `ExperimentLock`. Raises Locked at once while a controller holds it, and after
    `deadline_s` while other processes of a run do; LeadsElsewhere, OSError.
    """
    lock = ExperimentLock(
        layout.lock,
        deadline_s=deadline_s,
        is_mirror=layout.mirror_of.exists(),
        has_nodes=has_nodes,
    )
    try:
        check_enclosed(layout)
        yield lock
    finally:
        lock.release()


class OpenedExperiment:
    """The experiment at `place`. A command opens it once and passes it on.

    `fit`, `restore`, `can_restore`, `fit(resume="auto")` and the doctor share it. Each method
    reads the records as they are now: between a restore and its `fit()`, which takes the lock,
    another process may run the experiment. If none has, what a restore has read is not decoded
    again.
    """

    def __init__(
        self,
        place: ExperimentPlace,
        *,
        storage_timeout_s: float = 0.0,
        tree: str = "",
        copy_of: MirrorNote | None = None,
    ) -> None:
        """`storage_timeout_s`: how long to wait for a busy storage. `tree` is the user's path, if
        it is a tree that is uploaded to the storage of `place`. `copy_of`: the note in `place`,
        if that is a copy of such a tree."""
        self.place = place
        self._tree = tree
        self._copy_of = copy_of
        self._storage_timeout_s = storage_timeout_s
        self._prepared: ExperimentView | None = None

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str] | RunConfig,
        filesystem: Any,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        follows: bool = True,
    ) -> Self:
        """The experiment at a path or URI, or at that of a RunConfig with a name.

        Of a tree on this machine that is uploaded elsewhere: the experiment there. Unless it
        `follows` what the folder says, such a tree is refused. Reads at most notes of the tree.

        Raises NothingToRestore for a path that names no folder in a storage, InvalidConfig,
        InvalidLocation, OSError.
        """
        timeout_s = _STORAGE_TIMEOUT_S
        path = checked(path)
        if isinstance(path, RunConfig):
            timeout_s = path.sync_config.sync_timeout
        path, filesystem = address_of(path, filesystem, settings)
        parent, name = split(path, filesystem)
        named = find_place(parent, filesystem, name, settings, environ)
        place, note = followed(named.location.local_path, settings, environ)
        if place is None:
            return cls(named, storage_timeout_s=timeout_s, copy_of=note)
        if not follows:
            raise InvalidConfig(
                f"{path} is this machine's tree of {note}, and with trusted=False nothing that "
                f"it says is used: pass that URI. {COPY_ADVICE}"
            )
        return cls(place, storage_timeout_s=timeout_s, tree=path)

    @property
    def path(self) -> str:
        """The path for users, without credentials."""
        return self.place.location.public

    @property
    def notice(self) -> str:
        """A notice about the path for the user; "" for none."""
        if self._tree:
            return f"{self._tree} is this machine's tree of {self.path}: resuming that one"
        if (note := self._copy_of) is not None:
            there = f"To resume the experiment there: {resume_command(note.uri)}"
            return (
                f"{self.path} is a copy of a tree of {note}: it resumes by itself, with the "
                f"checkpoints that are here, and nothing is uploaded"
                f"{f'. {there}' if note.uri else ''}"
            )
        return ""

    def exists(self) -> bool:
        """True if there is an experiment, on this machine or in storage.

        Raises StorageError, or JournalUnreadable if there is one whose journal cannot be read.
        """
        if self._beginning() is not None:
            return True
        remote = self.place.remote
        if remote is None:
            return False
        return self._when_ready(lambda: with_store(remote, read_head)) is not None

    def tuner_file(self, *, trusted: bool = True) -> TunerFile:
        return TunerFile(self.place.layout.tuner, trusted=trusted)

    def recover(self, policy: TrialScheduler | None = None) -> ExperimentView:
        """Read the records on this machine; pass a `policy` to continue the experiment with it.

        Raises what `recovery.recover` raises.
        """
        if policy is None:
            return recover(self.place.layout, location=self.place.location)
        known, self._prepared = self._prepared, None  # a run changes its machine
        return recover(
            self.place.layout,
            policy,
            will_continue=True,
            known=known,
            location=self.place.location,
        )

    # -- a restore -------------------------------------------------------------------------------

    def prepare(self) -> ExperimentSpec:
        """Download the newest records and return the experiment's settings.

        Raises NothingToRestore, StorageError, JournalUnreadable, or TuneError if another
        experiment is in the way.
        """
        layout = self.place.layout
        if layout.root.is_file():
            raise NothingToRestore(f"{self.path} is a file: pass the folder of an experiment")
        try:
            self._when_ready(self._bring_unless_in_use)
        except StorageError as error:
            if not self._tree:
                raise
            what = f"{self.path}, whose tree is {self._tree}"
            raise type(error)("resume", what, str(error), COPY_ADVICE) from error
        beginning = self._beginning()
        if beginning is None:
            begun = layout.lock.exists() and segments(layout.journal)
            why = ": the run ended before its first record. Start it again" if begun else ""
            raise NothingToRestore(f"there is no experiment in {self.path}{why}")
        is_changed = self.tuner_file().is_extended or may_be_steered(
            layout.journal, beginning.position.segment
        )
        if not is_changed:
            return beginning.spec
        self._prepared = self.recover()
        return self._prepared.machine.spec

    def ended_without_results(self) -> bool:
        """True if the newest run is finished and has nothing to resume, or has no trial."""
        return _is_without_results(self.recover().machine)

    def bring(self) -> None:
        """Download the records if those in storage are newer.

        Raises NothingToRestore, StorageError, or TuneError if another experiment is in the way.
        """
        layout, remote, mode = self.place.layout, self.place.remote, self.place.mode
        if remote is None:
            return
        beginning = self._beginning()
        if beginning is None:
            if not fetch_state(layout, remote, mode=mode):
                raise NothingToRestore(f"there is no experiment in {self.path}: it has no journal")
            return
        head = published(remote)
        if head is None or has_all(layout, head):
            return
        if beginning.spec.experiment_id != head["experiment_id"]:
            raise TuneError(
                f"{layout.root} has another experiment of the same name: set "
                f"RAY_AIR_LOCAL_CACHE_DIR to another directory, or move it away"
            )
        claim = PurePosixPath(head["epoch"])
        aside = layout.root.with_name(f"{layout.root.name}{SET_ASIDE}{claim.name}")
        if aside.exists():
            aside = aside.with_name(f"{aside.name}-{unique()[:6]}")
        fetch_state(layout, remote, aside, mode=mode)
        _tell(
            f"Another machine has continued {self.path}. This run continues from there; what this "
            f"machine had is kept in {aside}"
        )

    def _bring_unless_in_use(self) -> None:
        if self.place.remote is None:
            return
        if not self.place.layout.root.exists():
            self.bring()
            return
        try:
            with locked(self.place.layout, deadline_s=0.0):
                self.bring()
        except Locked:
            return  # A run on this machine has the lock: nothing in storage is newer.

    def artifacts_left_in_storage(self, machine: Machine, sync: SyncConfig) -> str:
        """A notice about artifacts that trials wrote on another machine; "" if there are none."""
        place = self.place
        if place.remote is None or not sync.sync_artifacts or sync.restore_artifacts:
            return ""
        moved = [
            trial
            for trial in machine.trials.values()
            if trial.attempt
            and not trial.status.is_final
            and not place.layout.trial(trial.spec).exists()
        ]
        if not moved:
            return ""
        return (
            f"Artifacts that {len(moved)} unfinished trials wrote on another machine stay in "
            f"storage: Tuner.restore(..., restore_artifacts=True) downloads them. New files of "
            f"the trials replace those of the same names there"
        )

    # -- a new run -------------------------------------------------------------------------------

    def refuse_unfinished(self, tell: Callable[[str], None] = lambda text: None) -> None:
        """Refuse a new run under the name of an unfinished experiment, which could not be resumed
        after it.

        A finished one, or one without results, may be followed: the new run's trials get their own
        folders and journal segment. `tell` is called with a line that says how to see the earlier
        run.

        Raises ExperimentExists, StorageError, or JournalUnreadable if an experiment of this name
        cannot be read.
        """
        place = self.place
        exists = self._beginning() is not None
        if place.remote is None and (note := read_mirror(place.layout)) is not None:
            resumes = f", or resume it: {resume_command(note.uri)}" if note.uri else ""
            raise ExperimentExists(
                f"{place.layout.root} is the local tree of an experiment in another "
                f"storage ({note}): choose another name=... or storage_path{resumes}",
                self.path,
            )
        if place.remote is not None:
            if exists:
                self._check_newest()
            else:
                exists = fetch_state(place.layout, place.remote, mode=place.mode)
        if not exists:
            return
        recovered = self.recover()
        machine, ending = recovered.machine, recovered.machine.ending
        if machine.finished:
            self.check_nothing_hidden(recovered)
        if machine.finished and (ending is None or ending.reason not in RESUMABLE):
            tell(self._new_run_text(recovered, "has finished"))
            return
        if _is_without_results(machine):
            has_rows = any(trial.row is not None for trial in machine.trials.values())
            lack = "checkpoint" if has_rows and machine.expected.is_met else "results"
            tell(self._new_run_text(recovered, f"has no {lack}"))
            return
        before = runs_known_before(place.layout.journal, recovered.begins)
        runs = "all runs" if before is None else f"all {before + 1} runs"
        also = "" if before == 0 else f" (it removes {runs} of this name)"
        left = sum(not trial.status.is_final for trial in machine.trials.values())
        count = len(machine.trials)
        raise ExperimentExists(
            f"{self.path} holds an experiment that is not finished "
            f"({count} trial{'s' * (count != 1)} so far, {left} unfinished). Resume it: "
            f"{resume_hint(place.location, machine.spec)}, or resume='auto' in this script; "
            f"or start a new one under another name=..., or remove this one: "
            f"{holdfast_command('rm', self.path)}{also}",
            self.path,
        )

    def check_nothing_hidden(self, recovered: ExperimentView) -> None:
        """Refuse a run that seems finished, but has unreadable records after its end.

        Raises JournalUnreadable.
        """
        try:
            check_nothing_behind(self.place.layout.journal, recovered.end)
        except JournalUnreadable as error:
            raise error.at(self.path) from error

    def _check_newest(self) -> None:
        """Raises ExperimentExists if another machine has continued the experiment."""
        assert self.place.remote is not None
        head = published(self.place.remote)
        if head is None or has_all(self.place.layout, head):
            return
        raise ExperimentExists(
            f"Another machine has begun or continued the experiment in {self.path}; the copy in "
            f"{self.place.layout.root} is older. Move that directory away; then resume the one in "
            f"storage: {resume_command(self.path)} "
            f"(in Python: tune.Tuner.restore({self.path!r}).fit()), "
            f"or start this script again, which starts a new one if that one is finished. Or "
            f"start a new one under another name=...",
            self.path,
        )

    def _new_run_text(self, earlier: ExperimentView, state: str) -> str:
        before = runs_known_before(self.place.layout.journal, earlier.begins)
        if before is None:
            return (
                f"The earlier runs in {self.path} are kept, and the last one {state}; starting a "
                f"new run"
            )
        return (
            f"The earlier run in {self.path} {state}. Its files are kept (holdfast show --run "
            f"{before + 1} {shlex.quote(self.path)}); starting run {before + 2}"
        )

    # -- both ------------------------------------------------------------------------------------

    def _beginning(self) -> JournalStart | None:
        """The beginning of the experiment on this machine; None if there is none here.

        Raises JournalUnreadable if there is one whose journal cannot be read.
        """
        if self.place.remote is not None and not segments(self.place.layout.journal):
            return None
        try:
            return find_beginning(self.place.layout.journal)
        except JournalUnreadable as error:
            raise error.at(self.path) from error

    def _when_ready(self, perform: Callable[[], R]) -> R:
        """Perform it once storage is ready; a script without logging sees on stderr what it waits
        for."""
        return when_ready(
            perform,
            self.path,
            timeout_s=self._storage_timeout_s,
            tell=_tell,
        )


def _is_without_results(machine: Machine) -> bool:
    return not machine.trials or (machine.finished and machine.has_nothing)


def _tell(text: str) -> None:
    """A script without logging prints it to stderr."""
    _log.warning("%s", printable(text))
