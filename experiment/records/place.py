"""Where an experiment lies: its local tree, and the storage that keeps it."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal_start import (
    JournalStart,
    JournalUnreadable,
    check_nothing_behind,
    find_beginning,
    runs_known_before,
)
from holdfast.experiment.records.published import (
    fetch_state,
    has_all,
    is_mirror_of,
    mark,
    mirror_name,
    published,
    read_head,
)
from holdfast.experiment.records.recovery import NothingToRestore, Recovered, recover
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.names import printable
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.stopping import RESUMABLE
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError, redact
from holdfast.syncer.files.durable import make_folder, unique
from holdfast.syncer.files.regular import read_regular
from holdfast.syncer.journal.journal import segments
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.preflight import preflight_when_ready, when_ready
from holdfast.syncer.uploader.lock import ExperimentLock, Locked
from holdfast.trial.config import RunConfig, SyncConfig
from holdfast.trial.errors import ExperimentExists, InvalidConfig, TuneError

R = TypeVar("R")

_log = logging.getLogger(__name__)
_RETRY_S = SyncConfig().sync_timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlace:
    """`layout` is the tree on this machine; `remote` is where it is persisted, None where the tree
    itself lies in the storage. `location` is the experiment's folder as users see it. `mode` are
    the permissions of the tree's folder where it is made now."""

    layout: Layout
    location: Location
    remote: Location | None
    mode: int = 0o700


def find_place(
    storage_path: str | os.PathLike[str] | None,
    filesystem: object | None,
    name: str,
    settings: Settings,
    environ: Mapping[str, str],
) -> ExperimentPlace:
    """A local storage path is used as it is, with nothing copied twice, unless
    RAY_AIR_LOCAL_CACHE_DIR names another directory to work in.

    Raises InvalidLocation.
    """
    location = Location.resolve(storage_path, filesystem, environ).child(name)
    local = location.local_path
    work = settings.local_dir / name
    mode = 0o777 if settings.shared else 0o700
    if local is not None and (not settings.explicit_local_dir or Path(local) == work):
        return ExperimentPlace(
            layout=Layout(Path(local)), location=location, remote=None, mode=mode
        )
    if not is_mirror_of(Layout(work), location):
        work = settings.local_dir / mirror_name(name, location)
    return ExperimentPlace(layout=Layout(work), location=location, remote=location, mode=mode)


def check_local(place: ExperimentPlace) -> None:
    """Try to write where the experiment works.

    Raises StorageError, saying what was tried and what answered.
    """
    try:
        make_folder(place.layout.root, place.mode)
        with tempfile.TemporaryFile(dir=place.layout.root):  # without a name that could stay
            pass
    except OSError as error:
        raise StorageError(
            "write to",
            str(place.layout.root),
            error.strerror or str(error),
            "Choose another RunConfig(storage_path=...) or RAY_AIR_LOCAL_CACHE_DIR",
        ) from error


def check_remote(
    place: ExperimentPlace,
    *,
    timeout_s: float = 0.0,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Try to write where results will be kept, before trial 1; with the lock held, so that what
    runs of this tree left there when they died here is nobody's. A storage that answers that it
    cannot now is waited for so long, and `tell` hears of it.

    Raises StorageError, saying what was tried and what answered.
    """
    if place.remote is not None:
        where, owner = place.remote.public, _tree_name(place)
        with_store(
            place.remote,
            lambda store: preflight_when_ready(
                store, where, timeout_s=timeout_s, tell=tell, owner=owner
            ),
        )


def _tree_name(place: ExperimentPlace) -> str:
    """What no other machine's tree is called, and no other one of this machine."""
    tree = f"{os.uname().nodename} {place.layout.root}"
    return hashlib.sha256(tree.encode()).hexdigest()[:16]


def claim(place: ExperimentPlace) -> None:
    """Under the experiment's lock: no other storage's experiment will be taken for this one."""
    if place.remote is not None:
        mark(place.layout, place.remote)


def check_free(place: ExperimentPlace, tell: Callable[[str], None] = lambda text: None) -> bool:
    """Whether an experiment of this name was here before; nobody can want to go on with it then.

    The rule for `fit()` under a name that exists: a finished experiment may be followed by
    another, whose trials get folders and a journal segment of their own; an unfinished one is
    refused, for a second run would make it impossible to go on with. One that has ended without
    results may be followed too. `tell` gets a line that says how to see the earlier run.

    Raises ExperimentExists, StorageError, or JournalUnreadable where one of that name cannot be
    read.
    """
    exists = beginning_at(place) is not None
    if place.remote is None and place.layout.mirror_of.exists():
        storage = read_regular(place.layout.mirror_of).decode()
        raise ExperimentExists(
            f"{place.layout.root} is the local tree of an experiment that is kept in another "
            f"storage ({storage}): choose another RunConfig(name=...) "
            f"or storage_path",
            place.location.public,
        )
    if place.remote is not None:
        if exists:
            _check_newest(place, place.remote)
        else:
            exists = fetch_state(place.layout, place.remote, mode=place.mode)
    if not exists:
        return False
    recovered = recover(place.layout)
    machine, ending = recovered.machine, recovered.machine.ending
    if machine.finished:
        check_nothing_hidden(place, recovered)
    if machine.finished and (ending is None or ending.reason not in RESUMABLE):
        tell(_followed(place, recovered, "has finished"))
        return True
    if machine.finished and machine.has_nothing:
        tell(_followed(place, recovered, "has no results"))
        return True
    left = sum(not trial.status.is_final for trial in machine.trials.values())
    raise ExperimentExists(
        f"{place.location.public} holds an experiment that is not finished ({len(machine.trials)} "
        f"trials so far, {left} of them unfinished). Go on with it: "
        f"{call_that_goes_on(place.location.public, machine.spec)}, or fit(resume='auto') in this "
        f"script; or start anew under another RunConfig(name=...), or delete the folder",
        place.location.public,
    )


def _followed(place: ExperimentPlace, earlier: Recovered, state: str) -> str:
    """That another run begins under the name of an earlier one, and how to see that."""
    before = runs_known_before(place.layout.journal, earlier.begins)
    path = place.location.public
    if before is None:
        return f"The earlier runs in {path} are kept, and the last one {state}; starting a new run"
    return (
        f"The earlier run in {path} {state}. Its files are kept (holdfast show --run {before + 1} "
        f"{shlex.quote(path)}); starting run {before + 2}"
    )


def beginning_at(place: ExperimentPlace) -> JournalStart | None:
    """Where the experiment on this machine begins; None where there is none, or only in storage.

    Raises JournalUnreadable where there is one and its journal cannot be read.
    """
    if place.remote is not None and not segments(place.layout.journal):
        return None
    try:
        return find_beginning(place.layout.journal)
    except JournalUnreadable as error:
        raise error.at(place.location.public) from error


def check_nothing_hidden(place: ExperimentPlace, recovered: Recovered) -> None:
    """What is finished as far as it can be read may be followed by another that cannot.

    Raises JournalUnreadable.
    """
    try:
        check_nothing_behind(place.layout.journal, recovered.end)
    except JournalUnreadable as error:
        raise error.at(place.location.public) from error


def call_that_goes_on(path: str, spec: ExperimentSpec) -> str:
    """What to write to go on with the experiment there, ready to be pasted."""
    if trainer := spec.options.get("trainer"):
        return f"{trainer}.restore({path!r}).fit()"
    return f"tune.Tuner.restore({path!r}, trainable=...).fit()"


def bring(place: ExperimentPlace) -> None:
    """Have the newest state of the experiment here, from storage where that is newer.

    Raises NothingToRestore, StorageError, or TuneError where another experiment is in the way.
    """
    if place.remote is None:
        return
    if beginning_at(place) is None:
        if not fetch_state(place.layout, place.remote, mode=place.mode):
            raise NothingToRestore(
                f"there is no experiment in {place.location.public}: it has no journal"
            )
        return
    head = published(place.remote)
    if head is None or _is_ahead(place.layout, head):
        return
    aside = place.layout.root.with_name(f"{place.layout.root.name}.before-{head['epoch'][-6:]}")
    if aside.exists():
        aside = aside.with_name(f"{aside.name}-{unique()[:6]}")
    fetch_state(place.layout, place.remote, aside, mode=place.mode)


def left_elsewhere(place: ExperimentPlace, machine: Machine, sync: SyncConfig) -> str:
    """What is to be said of artifacts that trials wrote on another machine; "" for nothing."""
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
        f"artifacts that {len(moved)} unfinished trials wrote on another machine stay in storage: "
        f"Tuner.restore(..., restore_artifacts=True) brings them here. Files that the trials "
        f"write anew take the place of those of the same names there"
    )


def _is_ahead(layout: Layout, head: Mapping[str, Any]) -> bool:
    """Whether the journal here holds all that the head in storage names.

    Raises TuneError where it does not, and is of another experiment.
    """
    if has_all(layout, head):
        return True
    beginning = find_beginning(layout.journal)
    assert beginning is not None
    if beginning.spec.experiment_id != head["experiment_id"]:
        raise TuneError(
            f"{layout.root} holds another experiment of the same name: set "
            f"RAY_AIR_LOCAL_CACHE_DIR to another directory, or move it away"
        )
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorableExperiment:
    """An experiment that can be taken up; its state is on this machine."""

    place: ExperimentPlace
    spec: ExperimentSpec
    parent: str
    name: str

    def tuner_file(self, *, trusted: bool = True) -> TunerFile:
        return TunerFile(self.place.layout.tuner, trusted=trusted)


def place_of(
    path: str | os.PathLike[str] | RunConfig, filesystem: Any, settings: Settings
) -> tuple[str, Any]:
    """The path to an experiment, and its filesystem, also where a RunConfig says them.

    Raises InvalidConfig for a RunConfig without a name.
    """
    if not isinstance(path, RunConfig):
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(text, str) or "\0" in text:
            raise InvalidConfig(f"the path to an experiment must be text, not {path!r:.100}")
        return text, filesystem
    if path.name is None:
        raise InvalidConfig("restore finds an experiment by its name: give RunConfig(name=...)")
    base = os.fspath(path.storage_path or settings.storage or settings.local_dir)
    filesystem = path.storage_filesystem if filesystem is None else filesystem
    base, mark, query = base.partition("?") if filesystem is None else (base, "", "")
    return f"{base.rstrip('/')}/{path.name}{mark}{query}", filesystem


def _split(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The storage path and the name in a path to an experiment; a query stays with the storage."""
    if not os.fspath(path).strip():
        return "", ""
    base, mark, query = os.fspath(path).partition("?")
    scheme, separator, body = base.partition("://")
    if not separator:
        return os.path.split(os.path.abspath(os.path.expanduser(os.fspath(path))))
    parent, _, name = body.rstrip("/").rpartition("/")
    if scheme.lower() in ("file", "local"):
        parent = parent or "/" * body.startswith("/")
    return f"{scheme}{separator}{parent}{mark}{query}" if parent else "", name


def is_experiment(
    path: str | os.PathLike[str],
    filesystem: object | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    timeout_s: float = 0.0,
) -> bool:
    """A storage that answers that it cannot now is waited for so long."""
    try:
        parent, name = split(path, filesystem)
    except NothingToRestore:
        return False
    place = find_place(parent, filesystem, name, settings, environ)
    if beginning_at(place) is not None:
        return True
    if (remote := place.remote) is None:
        return False
    return _when_ready(lambda: with_store(remote, read_head), place, timeout_s) is not None


def open_for_restore(
    path: str | os.PathLike[str],
    filesystem: object | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    timeout_s: float = 0.0,
) -> RestorableExperiment:
    """A storage that answers that it cannot now is waited for so long.

    Raises NothingToRestore, StorageError.
    """
    parent, name = split(path, filesystem)
    place = find_place(parent, filesystem, name, settings, environ)
    if place.layout.root.is_file():
        raise NothingToRestore(
            f"{place.location.public} is a file: give the folder of an experiment"
        )
    _when_ready(lambda: _bring_unless_in_use(place), place, timeout_s)
    beginning = beginning_at(place)
    if beginning is None:
        raise NothingToRestore(f"there is no experiment in {place.location.public}")
    spec = beginning.spec
    if TunerFile(place.layout.tuner).is_extended:
        spec = recover(place.layout).machine.spec
    return RestorableExperiment(place=place, spec=spec, parent=parent, name=name)


def wait_for_storage_s(path: object) -> float:
    """Seconds to wait for a storage that cannot now: what a RunConfig says, else the default."""
    return path.sync_config.sync_timeout if isinstance(path, RunConfig) else _RETRY_S


def _when_ready(perform: Callable[[], R], place: ExperimentPlace, timeout_s: float) -> R:
    """Without a logging of its own, a script sees on stderr what is waited for."""
    return when_ready(
        perform,
        place.location.public,
        timeout_s=timeout_s,
        tell=lambda text: _log.warning("%s", printable(text)),
    )


def _bring_unless_in_use(place: ExperimentPlace) -> None:
    if place.remote is None:
        return
    if not place.layout.root.exists():
        bring(place)
        return
    try:
        lock = ExperimentLock(
            place.layout.lock, deadline_s=0, is_mirror=place.layout.mirror_of.exists()
        )
    except Locked:
        # It is run here at this moment: nothing in storage is newer.
        return
    try:
        bring(place)
    finally:
        lock.release()


def split(path: str | os.PathLike[str], filesystem: object | None) -> tuple[str, str]:
    """The storage path and the name in a path to an experiment.

    Raises NothingToRestore for a path that names no folder in some storage."""
    if filesystem is None:
        parent, name = _split(path)
    else:
        parent, _, name = os.fspath(path).rstrip("/").rpartition("/")
    if not parent or name in ("", ".", ".."):
        raise NothingToRestore(
            f"{redact(os.fspath(path)) or repr('')} names no experiment: give the path "
            f"<storage_path>/<name> of one, or its RunConfig"
        )
    return parent, name


def _check_newest(place: ExperimentPlace, remote: Location) -> None:
    """Raises ExperimentExists where another machine has taken the experiment further than this."""
    head = published(remote)
    if head is None or has_all(place.layout, head):
        return
    where = place.location.public
    raise ExperimentExists(
        f"{where} holds an experiment of another machine, or one that was taken further there: "
        f"what is in {place.layout.root} is older. Move that directory away; then go on with the "
        f"one in storage: tune.Tuner.restore({where!r}, trainable=...).fit(), or call fit() "
        f"again, which begins another if that one is finished. Or start anew under another "
        f"RunConfig(name=...)",
        where,
    )
