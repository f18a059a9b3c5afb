"""Where an experiment lies: its local tree, and the storage that keeps it."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.experiment.layout import CALLBACKS, HEAD, JOURNAL, TUNER, Layout
from holdfast.experiment.recovery import NothingToRestore, recover
from holdfast.experiment.settings import Settings
from holdfast.experiment.snapshots import find_beginning
from holdfast.experiment.tuner_file import BrokenTunerFile, TunerFile
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import RESUMABLE
from holdfast.syncer.download import with_store
from holdfast.syncer.durable import unique, write_atomic
from holdfast.syncer.errors import NotStored, StorageError
from holdfast.syncer.location import Location
from holdfast.syncer.lock import ExperimentLock, Locked
from holdfast.syncer.preflight import preflight
from holdfast.syncer.store import Store, for_each
from holdfast.trial.errors import ExperimentExists, TuneError

_AT_ONCE = 16
_PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`layout` is the tree on this machine; `remote` is where it is persisted, None where the tree
    itself lies in the storage. `location` is the experiment's folder as users see it."""

    layout: Layout
    location: Location
    remote: Location | None


def find_place(
    storage_path: str | os.PathLike[str] | None,
    filesystem: object | None,
    name: str,
    settings: Settings,
    environ: Mapping[str, str],
) -> Place:
    """A local storage path is used as it is, with nothing copied twice, unless
    RAY_AIR_LOCAL_CACHE_DIR names another directory to work in.

    Raises InvalidLocation.
    """
    location = Location.resolve(storage_path, filesystem, environ).child(name)
    local = location.local_path
    work = settings.local_dir / name
    if local is not None and (not settings.explicit_local_dir or Path(local) == work):
        return Place(layout=Layout(Path(local)), location=location, remote=None)
    return Place(layout=Layout(work), location=location, remote=location)


def check_storage(place: Place) -> None:
    """Try to write where results will go, before trial 1.

    Raises StorageError, saying what was tried and what answered.
    """
    try:
        place.layout.root.mkdir(parents=True, exist_ok=True)
        probe = place.layout.root / f".writable-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StorageError(
            "write to",
            str(place.layout.root),
            error.strerror or str(error),
            "Choose another RunConfig(storage_path=...) or RAY_AIR_LOCAL_CACHE_DIR",
        ) from error
    if place.remote is not None:
        where = place.remote.public
        with_store(place.remote, lambda store: preflight(store, where))


def check_free(place: Place) -> bool:
    """Whether an experiment of this name was here before; it is finished then.

    The rule for `fit()` under a name that exists: a finished experiment may be followed by
    another, whose trials get folders and a journal segment of their own; an unfinished one is
    refused, for a second run would make it impossible to go on with.

    Raises ExperimentExists, StorageError.
    """
    exists = find_beginning(place.layout.journal) is not None
    if place.remote is not None:
        if exists:
            _check_newest(place, place.remote)
        else:
            exists = _fetch_state(place)
    if not exists:
        return False
    machine = recover(place.layout).machine
    ending = machine.ending
    if machine.finished and (ending is None or ending.reason not in RESUMABLE):
        return True
    left = sum(not trial.status.is_final for trial in machine.trials.values())
    raise ExperimentExists(
        f"{place.location.public} holds an experiment that is not finished ({len(machine.trials)} "
        f"trials so far, {left} of them unfinished). Go on with it: "
        f"Tuner.restore({place.location.public!r}, trainable=...).fit(); or start anew under "
        f"another RunConfig(name=...), or delete the folder",
        place.location.public,
    )


def bring(place: Place) -> None:
    """Have the newest state of the experiment here, from storage where that is newer.

    Raises NothingToRestore, StorageError, or TuneError where another experiment is in the way.
    """
    if place.remote is None:
        return
    if find_beginning(place.layout.journal) is None:
        if not _fetch_state(place):
            raise NothingToRestore(
                f"there is no experiment in {place.location.public}: it has no journal"
            )
        return
    head = _published(place.remote)
    if head is None or _is_ahead(place.layout, head):
        return
    aside = place.layout.root.with_name(f"{place.layout.root.name}.before-{head['epoch'][-6:]}")
    if aside.exists():
        aside = aside.with_name(f"{aside.name}-{unique()[:6]}")
    _fetch_state(place, aside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An experiment that can be taken up; its state is on this machine."""

    place: Place
    spec: ExperimentSpec
    parent: str
    name: str

    def tuner_file(self, *, needed: bool) -> TunerFile | None:
        """Raises BrokenTunerFile, unless nothing in it is needed."""
        try:
            return TunerFile(self.place.layout.tuner)
        except BrokenTunerFile:
            if needed:
                raise
            return None


def _split(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The storage path and the name in a path to an experiment; a query stays with the storage."""
    base, mark, query = os.fspath(path).partition("?")
    parent, _, name = base.rstrip("/").rpartition("/")
    if "://" not in base:
        parent, name = os.path.split(os.path.abspath(os.path.expanduser(base)))
    return f"{parent}{mark}{query}", name


def is_experiment(
    path: str | os.PathLike[str],
    filesystem: object | None,
    settings: Settings,
    environ: Mapping[str, str],
) -> bool:
    parent, name = _split_for(path, filesystem)
    place = find_place(parent, filesystem, name, settings, environ)
    if find_beginning(place.layout.journal) is not None:
        return True
    return place.remote is not None and with_store(place.remote, _read_head) is not None


def open_for_restore(
    path: str | os.PathLike[str],
    filesystem: object | None,
    settings: Settings,
    environ: Mapping[str, str],
) -> Found:
    """Raises NothingToRestore, StorageError."""
    parent, name = _split_for(path, filesystem)
    place = find_place(parent, filesystem, name, settings, environ)
    _bring_unless_in_use(place)
    beginning = find_beginning(place.layout.journal)
    if beginning is None:
        raise NothingToRestore(f"there is no experiment in {place.location.public}")
    return Found(place=place, spec=beginning.spec, parent=parent, name=name)


def _bring_unless_in_use(place: Place) -> None:
    if not place.layout.root.exists():
        bring(place)
        return
    try:
        lock = ExperimentLock(place.layout.lock, deadline_s=0)
    except Locked:
        # It is run here at this moment: nothing in storage is newer.
        return
    try:
        bring(place)
    finally:
        lock.release()


def _split_for(path: str | os.PathLike[str], filesystem: object | None) -> tuple[str, str]:
    if filesystem is None:
        return _split(path)
    parent, _, name = os.fspath(path).rstrip("/").rpartition("/")
    return parent, name


def _check_newest(place: Place, remote: Location) -> None:
    """Raises ExperimentExists where another machine has taken the experiment further than this."""
    head = _published(remote)
    if head is None or _has_all(place.layout, head):
        return
    where = place.location.public
    raise ExperimentExists(
        f"{where} holds an experiment of another machine, or one that was taken further there: "
        f"what is in {place.layout.root} is older. Move that directory away; then go on with the "
        f"one in storage: Tuner.restore({where!r}, trainable=...).fit(), or call fit() again, "
        f"which begins another if that one is finished. Or start anew under another "
        f"RunConfig(name=...)",
        where,
    )


def _published(remote: Location) -> dict[str, Any] | None:
    """The head in storage, None where there is none to compare what is here with."""
    head = with_store(remote, _read_head)
    return head if head is not None and head["epoch"] else None


def _is_ahead(layout: Layout, head: Mapping[str, Any]) -> bool:
    """Whether the journal here holds all that the head in storage names.

    Raises TuneError where it does not, and is of another experiment.
    """
    if _has_all(layout, head):
        return True
    beginning = find_beginning(layout.journal)
    assert beginning is not None
    if beginning.spec.experiment_id != head["experiment_id"]:
        raise TuneError(
            f"{layout.root} holds another experiment of the same name: set "
            f"RAY_AIR_LOCAL_CACHE_DIR to another directory, or move it away"
        )
    return False


def _has_all(layout: Layout, head: Mapping[str, Any]) -> bool:
    return all(_has_segment(layout, segment) for segment in head["segments"])


def _has_segment(layout: Layout, segment: Mapping[str, Any]) -> bool:
    path = layout.journal / segment["name"]
    if not path.exists():
        return False
    data = path.read_bytes()[: segment["size"]]
    known = segment.get("crc32", zlib.crc32(data))
    return bool(len(data) == segment["size"] and zlib.crc32(data) == known)


def _fetch_state(place: Place, aside: Path | None = None) -> bool:
    """Download journal and tuner.pkl; False where there is no experiment.

    They appear here when they are whole, so that a death meanwhile leaves no half of a journal
    that counts as an older one. What is here is moved to `aside`, where that is given.
    """
    assert place.remote is not None
    root = place.layout.root
    partial = Layout(root.with_name(f"{root.name}{_PARTIAL}{os.getpid()}"))
    _clear_partials(root)
    try:
        found: bool = with_store(place.remote, lambda store: _download(store, partial))
        if found:
            if aside is not None:
                _set_aside(place.layout, aside)
            _move_in(partial, place.layout)
    finally:
        shutil.rmtree(partial.root, ignore_errors=True)
    return found


def _clear_partials(root: Path) -> None:
    """Remove downloads that died, and none that another process is at."""
    start = f"{root.name}{_PARTIAL}"
    for path in root.parent.iterdir() if root.parent.exists() else ():
        pid = path.name.removeprefix(start)
        if path.name.startswith(start) and pid.isdecimal() and not _is_another(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _is_another(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def _set_aside(layout: Layout, aside: Path) -> None:
    """All but the lock, which is held; the journal first, without which there is no experiment."""
    aside.mkdir()
    layout.journal.rename(aside / JOURNAL)
    for path in list(layout.root.iterdir()):
        if path != layout.lock:
            path.rename(aside / path.name)


def _move_in(partial: Layout, layout: Layout) -> None:
    """The journal goes last into a directory that exists: with it there is an experiment."""
    if not layout.root.exists():
        partial.root.rename(layout.root)
        return
    if find_beginning(layout.journal) is not None:
        return  # another process was faster
    for source, target in (
        (partial.tuner, layout.tuner),
        (partial.callbacks, layout.callbacks),
    ):
        if source.exists():
            source.replace(target)
    if layout.journal.exists() and any(layout.journal.iterdir()):
        aside = layout.root.with_name(f"{layout.root.name}.before-{unique()[:6]}")
        aside.mkdir()
        layout.journal.rename(aside / JOURNAL)
    partial.journal.rename(layout.journal)


async def _read_head(store: Store) -> dict[str, Any] | None:
    """What is published. Where no head names it (a local experiment that was copied there, or a
    damaged head): the segments that lie there."""
    try:
        head: dict[str, Any] = json.loads(await store.read(HEAD))
    except (NotStored, ValueError):
        listed = [entry for entry in await store.list(JOURNAL) if entry.key.endswith(".log")]
        found = [{"name": entry.key.rpartition("/")[2], "size": entry.size} for entry in listed]
        return {"epoch": "", "segments": found} if found else None
    return head


async def _download(store: Store, layout: Layout) -> bool:
    head = await _read_head(store)
    if head is None:
        return False
    layout.journal.mkdir(parents=True, exist_ok=True)
    await for_each(
        lambda segment: _download_segment(store, layout, segment),
        head["segments"],
        at_once=_AT_ONCE,
    )
    for name, path in ((TUNER, layout.tuner), (CALLBACKS, layout.callbacks)):
        # The first is needed where restore() is given no trainable, and it is told then.
        with suppress(NotStored):
            write_atomic(path, await store.read(name))
    return True


async def _download_segment(store: Store, layout: Layout, segment: Mapping[str, Any]) -> None:
    key = f"{JOURNAL}/{segment['name']}"
    target = layout.root / key
    await store.get(key, target)
    if not _has_segment(layout, segment):
        target.unlink()
        raise StorageError("read", key, "its size or checksum is not what the head says")
