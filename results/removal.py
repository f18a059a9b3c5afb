"""`holdfast rm`: finds what a removal of an experiment would free, and removes it under its lock.

What is removed first makes the rest unreadable: the folder gets a hidden name, and storage loses
its head and its journal. The claims in storage go last. So an interrupted removal leaves nothing
that a reader takes for an experiment, and a second one finishes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.contents import aside_of, erase_tree, is_experiment, is_written
from holdfast.experiment.folder.layout import HEAD, JOURNAL, PARAMS, STAGING, STDOUT, Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.records.journal import traces_in
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.records.place import read_mirror
from holdfast.experiment.records.view import (
    Condition,
    ExperimentView,
    Standing,
    longest_silence_s,
)
from holdfast.results.catalog import CatalogEntry, described
from holdfast.results.reading import (
    ExperimentNotFound,
    NeverBegun,
    find,
    is_copy,
    not_found,
    published_as,
)
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError, os_errors, redact
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import CLAIMS, bytes_below
from holdfast.syncer.journal.journal import segments
from holdfast.syncer.journal.stretches import is_segment
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim, OwnedStore
from holdfast.syncer.stores.store import ObjectInfo, Store
from holdfast.syncer.uploader.lock import ExperimentLock, Locked, current_holder
from holdfast.text.values import duration
from holdfast.trees import refuse_mounts
from holdfast.trial.errors import InvalidConfig, TuneError

_BATCH = 1_000  # as many as one request to S3 deletes


def erase(
    layout: Layout | None,
    remote: Location | None,
    *,
    experiment_id: str = "",
    known: Claim | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Remove the tree on this machine, the storage, or both.

    `known` is the newest claim when the storage was listed: if there is a newer one, another run
    has begun there. `progress` is called with the number of removed objects and of all.

    Raises Locked while a process runs the experiment, ClaimLost, StorageError.
    """
    with ExitStack() as held:
        if layout is not None and layout.root.exists():
            with os_errors("lock", str(layout.root)):
                lock = ExperimentLock(layout.lock, is_mirror=remote is not None)
            held.callback(lock.release)
        if remote is not None:
            _erase_stored(remote, experiment_id, known, progress)
        if layout is not None:
            erase_tree(layout.root)


def _erase_stored(
    remote: Location,
    experiment_id: str,
    known: Claim | None,
    progress: Callable[[int, int], None],
) -> None:
    if remote.local_path is not None:
        with_store(remote, partial(claimed, experiment_id=experiment_id, known=known))
        erase_tree(Path(remote.local_path))
        return
    erases = partial(erase_objects, experiment_id=experiment_id, known=known, progress=progress)
    with_store(remote, erases)


async def erase_objects(
    store: Store,
    *,
    experiment_id: str,
    known: Claim | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Remove every object of an experiment, the newest claim of which is `known`.

    Raises ClaimLost if another run begins there meanwhile, StorageError.
    """
    owned, keys = await claimed(store, experiment_id=experiment_id, known=known)
    if await store.unfinished():
        await store.abandon()
    done = 0
    for batch in _batches(keys):
        await owned.delete(batch)
        done += len(batch)
        progress(done, len(keys))
    await owned.check(at_once=True)
    await store.delete([key for key in keys if key.startswith(f"{CLAIMS}/")])


async def claimed(
    store: Store, operation: str = "remove", *, experiment_id: str, known: Claim | None
) -> tuple[OwnedStore, list[str]]:
    """The storage, claimed for a removal, which ends a run elsewhere; and its keys with that of
    the claim.

    Raises StorageError if its newest claim is not `known`: another run has begun since it was
    listed, and may own the objects.
    """
    keys = [entry.key for entry in await store.list("", leftovers=True)]
    if Claim.newest(keys) != known:
        cause = "another run or restore of this experiment has begun meanwhile"
        raise StorageError(operation, store.where, cause, "Look at it again")
    owned = OwnedStore(store, where=store.where, experiment_id=experiment_id, parallel=8)
    await owned.claim()
    assert owned.claimed is not None
    return owned, [*keys, owned.claimed.key]


def _batches(keys: Sequence[str]) -> Iterator[list[str]]:
    """The keys in the order in which they are removed, without the claims."""
    rest = [key for key in keys if not key.startswith(f"{CLAIMS}/")]
    # In one request: without its head a whole journal can be read.
    first = [*(key for key in rest if key.startswith(f"{JOURNAL}/")), HEAD]
    yield first
    others = [key for key in rest if key not in set(first)]
    for at in range(0, len(others), _BATCH):
        yield others[at : at + _BATCH]


Part = Literal["both", "local", "storage"]
# A run publishes at least so often with the usual sync_period.
_USUAL_SILENCE_S = 660.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The parts that would be removed: the tree on this machine, the storage, or both; None for a
    part that is not there or not wanted.

    `entry` describes the experiment as in a listing. `others` are files in its folder that
    holdfast has not written. `keeps` is the place that is not removed, "" for none.
    """

    path: str
    entry: CatalogEntry
    layout: Layout | None
    remote: Location | None
    bytes_here: int = 0
    bytes_stored: int = 0
    objects: int = 0
    others: tuple[str, ...] = ()
    keeps: str = ""
    experiment_id: str = ""
    claim: Claim | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            **self.entry.plain(),
            "path": self.path,
            "local": None if self.layout is None else str(self.layout.root),
            "local_bytes": self.bytes_here,
            "storage": None if self.remote is None else self.remote.public,
            "storage_bytes": self.bytes_stored,
            "storage_objects": self.objects,
        }


def removal(
    path: str, part: Part, settings: Settings, environ: Mapping[str, str], *, now: float
) -> Removal:
    """Find the parts that `holdfast rm` would remove. Changes nothing.

    Raises ExperimentNotFound for what is not an experiment, Locked for one that runs here or
    elsewhere, InvalidConfig if `part` does not exist or is not clear, Mounted, StorageError,
    OSError.
    """
    location = Location.resolve(path, None, {})
    layout, remote = _places(path, location, settings, environ)
    if layout is not None and (holder := current_holder(layout.lock)):
        raise Locked("remove", str(layout.root), f"{holder} is using it", "Stop it first")
    stored = list[ObjectInfo]()
    if remote is not None:
        stored = with_store(remote, lambda store: store.list("", leftovers=True))
    if remote is not None and not _is_stored_experiment(stored):
        if layout is None:
            raise ExperimentNotFound(not_found(location), location.public)
        remote = None  # nothing is published yet
    experiment, state, problem = _read(path, settings, environ)
    if remote is not None:
        _check_silent(remote, experiment, now)
    kept = {"both": None, "local": remote, "storage": layout and layout.root}[part]
    if part == "both" and remote is None and layout is not None:
        _check_alone(layout, location, settings, environ)
    layout, remote = _wanted(part, layout, remote, location)
    entry = CatalogEntry(
        name=location.path.rstrip("/").rpartition("/")[2],
        path=location.public,
        standing=Standing(state=state),
        problem=problem,
    )
    if layout is not None:
        refuse_mounts(layout.root)
    if remote is not None and remote.local_path is not None:
        refuse_mounts(remote.local_path)
    here, there = _bytes_of(layout), sum(one.size for one in stored) if remote is not None else 0
    if experiment is not None:
        entry = described(experiment, entry.name, now, None)
    return Removal(
        path=location.public,
        entry=replace(entry, size_bytes=here + there),
        layout=layout,
        remote=remote,
        bytes_here=here,
        bytes_stored=there,
        objects=len(stored) if remote is not None else 0,
        others=_others(layout, experiment),
        keeps="" if kept is None else str(kept),
        experiment_id="" if experiment is None else experiment.machine.spec.experiment_id,
        claim=Claim.newest(one.key for one in stored),
    )


def _places(
    path: str, location: Location, settings: Settings, environ: Mapping[str, str]
) -> tuple[Layout | None, Location | None]:
    """The tree on this machine, and the storage elsewhere."""
    here = location.local_path
    if here is not None and os.path.islink(here):
        raise InvalidConfig(
            f"{here} is a link to {os.path.realpath(here)}: pass that path. rm follows no link"
        )
    if here is None or os.path.lexists(os.path.join(here, HEAD)):
        place = OpenedExperiment.at(path, None, settings, environ).place
        if place.remote is not None:
            return place.layout if _is_tree(place.layout) else None, location
    layout = Layout(Path(str(here)))
    if not _is_tree(layout):
        raise ExperimentNotFound(not_found(location), path)
    return layout, None


def _is_tree(layout: Layout) -> bool:
    """True if holdfast has made this folder, also if it is damaged or was removed in part."""
    has_locks = all(os.path.lexists(lock) for lock in layout.locks)
    is_one = is_experiment(str(layout.root)) and (
        has_locks or segments(layout.journal) or traces_in(layout.root)
    )
    return bool(is_one) or os.path.lexists(aside_of(layout.root))


def _is_stored_experiment(stored: list[ObjectInfo]) -> bool:
    """True if holdfast has written there, also if most was removed: the claims go last."""
    names = (one.key.removeprefix(f"{JOURNAL}/") for one in stored if one.key != one.name)
    return Claim.newest(one.key for one in stored) is not None or any(map(is_segment, names))


def _read(
    path: str, settings: Settings, environ: Mapping[str, str]
) -> tuple[ExperimentView | None, Condition, str]:
    """The experiment, or its state and why it cannot be read."""
    try:
        return find(path, settings, environ, asks=False), Condition.UNREADABLE, ""
    except NeverBegun as error:
        return None, Condition.NEVER_BEGUN, str(error)
    except (TuneError, OSError, ValueError) as error:
        return None, Condition.UNREADABLE, redact(str(error))


def _check_silent(remote: Location, experiment: ExperimentView | None, now: float) -> None:
    """Raise Locked if the experiment may run on another machine."""
    if experiment is None:
        head = published_as(remote)
        heard_at, silence_s = None if head is None else head.modified, _USUAL_SILENCE_S
    elif experiment.condition(now) is Condition.LIVE:
        heard_at, silence_s = experiment.heard_at, longest_silence_s(experiment.machine)
    else:
        return
    if heard_at is not None and now - heard_at <= silence_s:
        ago, left = duration(max(0.0, now - heard_at)), duration(heard_at + silence_s - now)
        raise Locked(
            "remove",
            remote.public,
            f"it was published {ago} ago, perhaps by a run on another machine",
            f"Stop that run there. If it was killed, remove it in {left}",
        )


def _check_alone(
    layout: Layout, location: Location, settings: Settings, environ: Mapping[str, str]
) -> None:
    """Raise InvalidConfig for the tree of an experiment in storage, which would stay there. A copy
    of such a tree may be removed."""
    note = read_mirror(layout)
    if note is None or (note.uri and is_copy(location, settings, environ)):
        return
    both = "pass the URI of the experiment there to remove both"
    if note.uri:
        both = f"{holdfast_command('rm', note.uri)} removes both"
    raise InvalidConfig(
        f"{location} is this machine's tree of the experiment in {note}: {both}, and --local only "
        f"this tree"
    )


def _wanted(
    part: Part, layout: Layout | None, remote: Location | None, location: Location
) -> tuple[Layout | None, Location | None]:
    if part == "local" and layout is None:
        raise InvalidConfig(f"this machine has no tree of {location.public}: leave --local out")
    if part == "storage" and remote is None:
        raise InvalidConfig(
            f"{location.public} has no storage elsewhere that this path names: leave --storage "
            f"out, or pass the URI of the experiment in storage"
        )
    return (None if part == "storage" else layout), (None if part == "local" else remote)


def _bytes_of(layout: Layout | None) -> int:
    if layout is None:
        return 0
    return bytes_below(str(layout.root)) + bytes_below(str(aside_of(layout.root)))


def _others(layout: Layout | None, experiment: ExperimentView | None) -> tuple[str, ...]:
    """Names in the experiment's folder that are the user's own."""
    if layout is None or not layout.root.is_dir():
        return ()
    trials = () if experiment is None else experiment.machine.trials.values()
    known = {HEAD, CLAIMS, *(trial.spec.dirname.rstrip("/") for trial in trials)}
    names = sorted(os.listdir(layout.root))
    if experiment is None or experiment.runs_before != 0:
        # Not all trials are known. Each of their folders has one of these.
        of_trial = (PARAMS, STDOUT, STAGING)
        known |= {n for n in names if any((layout.root / n / one).exists() for one in of_trial)}
    return tuple(
        name
        for name in names
        if name not in known and not is_written(name) and not is_leftover(name)
    )
