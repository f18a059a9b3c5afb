"""`holdfast ls`: the experiments in a directory or a bucket; and the one that a name means."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.contents import (
    aside_of,
    experiments_in,
    is_experiment,
    names_like,
    similar_to,
)
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import read_listed
from holdfast.experiment.folder.trial_folder import bucket_of, has_bucket, list_folder
from holdfast.experiment.records.journal import JournalUnreadable
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.records.place import is_mirror_of
from holdfast.experiment.records.view import Condition, ExperimentView, Standing
from holdfast.names import listed
from holdfast.results.reading import ExperimentNotFound, NeverBegun, find, published_as
from holdfast.results.result_grid import front_of
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError, redact
from holdfast.syncer.files.tree import bytes_below
from holdfast.syncer.stores.location import Location, default_storage, in_uri
from holdfast.syncer.uploader.lock import current_holder
from holdfast.trial.best import leader, value_of, winner
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.trial import Status

_SHOWN = 3


class AmbiguousName(InvalidConfig):
    """Two places have an experiment of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A directory or URI with experiments; `why` says why a name is looked for there. `known`:
    names that it had when it was used last. `asks`: a storage is asked for others."""

    text: str
    why: str
    known: tuple[str, ...] = ()
    asks: bool = True

    @property
    def location(self) -> Location:
        return Location.resolve(self.text, None, {})

    def path_of(self, name: str) -> str:
        return path_in(self.text, name)

    def has(self, name: str, environ: Mapping[str, str]) -> bool:
        """Raises StorageError."""
        if (local := self.location.local_path) is not None:
            return _is_here(os.path.join(local, name))
        if not self.asks:
            return name in self.known
        settings = Settings.read(environ)
        try:
            return OpenedExperiment.at(self.path_of(name), None, settings, environ).exists()
        except JournalUnreadable:
            return True

    def has_listed(self, name: str, environ: Mapping[str, str]) -> bool:
        """The same, without asking a storage: it had the name when it was listed."""
        if self.location.local_path is not None:
            return self.has(name, environ)
        return name in self.known

    def names(self) -> Iterable[str]:
        with suppress(StorageError, OSError):
            location = self.location
            if location.local_path is not None:
                return list(experiments_in(location.local_path))
            if self.asks:
                return list_folder(location)
        return self.known

    def __str__(self) -> str:
        return f"{self.location.public} ({self.why})"


def path_of(text: str, root: str | None, environ: Mapping[str, str]) -> str:
    """The path or URI of the experiment that the user named.

    A path or URI is returned as it is. A name is looked for in `root` if that is given; else in
    the current directory; else in HOLDFAST_ROOT if that is set; else where `fit()` keeps results,
    and in the places that were used last. Raises ExperimentNotFound, AmbiguousName,
    InvalidLocation, StorageError.
    """
    name = text.rstrip("/")
    if "://" in text or name in ("", ".", "..") or text.startswith(("/", "~", "./", "../")):
        return text
    if root is not None:
        return _only(name, [_Place(text=root, why="--root")], environ, here="")
    if _is_here(name) or "/" in name:
        return text
    try:
        return _only(name, _places(environ), environ, here="in the current directory, ")
    except ExperimentNotFound:
        if os.path.exists(name):
            return text  # the command says what it is
        raise


def may_be_mistyped(name: str, environ: Mapping[str, str]) -> bool:
    """True if a name that no experiment has is similar to one that an experiment has."""
    known = {one for place in _places(environ) for one in place.names()}
    return bool(similar_to(name, known))


def _is_here(folder: str) -> bool:
    """True if there is an experiment, or the rest of one whose removal was interrupted."""
    return is_experiment(folder) or os.path.lexists(aside_of(Path(folder)))


def default_place(environ: Mapping[str, str]) -> str:
    """The place that `holdfast ls` lists by default: HOLDFAST_ROOT, or where `fit()` keeps
    results."""
    place = environ.get("HOLDFAST_ROOT") or default_storage(environ)
    return os.path.expanduser(place)  # so that the commands that ls prints need no quotes


def place_to_list(environ: Mapping[str, str]) -> str:
    """The place that `holdfast ls` lists without a path: HOLDFAST_ROOT; else the current folder or
    one in it, if a run has used that; else the default place or, if there is no such folder, the
    place that was used last."""
    place, lately = default_place(environ), [last.place for last in read_listed(environ)]
    if environ.get("HOLDFAST_ROOT"):
        return place
    here = os.getcwd()
    for one in lately:
        if here in (one, os.path.dirname(one)) and os.path.isdir(one):
            return one
    if "://" in place or os.path.isdir(place):
        return place
    return next(iter(lately), place)


def _places(environ: Mapping[str, str]) -> list[_Place]:
    if root := environ.get("HOLDFAST_ROOT"):
        return [_Place(text=root, why="HOLDFAST_ROOT")]
    usual = _Place(text=default_storage(environ), why="where fit() keeps results")
    others: list[_Place] = []
    for number, last in enumerate(read_listed(environ)):
        if _is_same(last.place, usual.location.public):  # which may have credentials
            usual = replace(usual, known=last.names)
        elif not any(_is_same(last.place, one.text) for one in others):
            # Of several storages, old ones may not answer any more.
            one = _Place(text=last.place, why="used lately", known=last.names, asks=number == 0)
            others.append(one)
    return [usual, *others]


def _only(name: str, places: Sequence[_Place], environ: Mapping[str, str], *, here: str) -> str:
    found = [place for place in places if place.has_listed(name, environ)]
    found = found or [place for place in places if place.has(name, environ)]
    if len(found) > 1 and (stored := _stored(found, name)) is not None:
        return stored.path_of(name)
    if len(found) > 1:
        paths = " and ".join(f"{place.path_of(name)} ({place.why})" for place in found)
        raise AmbiguousName(f"two experiments are named {name!r}: {paths}. Pass the path of one")
    if found:
        return found[0].path_of(name)
    hint = names_like(name, {known for place in places for known in place.names()})
    where = listed([str(place) for place in places], _SHOWN, " or in ")
    raise ExperimentNotFound(
        f"there is no experiment {name!r} {here}{'nor ' * bool(here)}in {where}. {hint}. Or pass "
        f"a path, a URI, or --root",
        name,
    )


def _is_same(one: str, other: str) -> bool:
    """True if two places are one: a URI may say where its storage is, or leave it to the
    environment, and its other options change nothing."""
    (base, _, query), (other_base, _, other_query) = one.partition("?"), other.partition("?")
    if base.rstrip("/") != other_base.rstrip("/") or "://" not in one:
        return one == other
    hosts = {_endpoint(query), _endpoint(other_query)} - {""}
    return len(hosts) < 2


def _endpoint(query: str) -> str:
    given = parse_qs(query).get("endpoint_override", [""])[-1]
    return given.partition("://")[2] or given


def _stored(found: Sequence[_Place], name: str) -> _Place | None:
    """The storage of the experiment, if the other place has the tree that is uploaded to it."""
    trees = [path for place in found if (path := place.location.local_path) is not None]
    storages = [place for place in found if place.location.local_path is None]
    if len(trees) != 1 or len(storages) != 1:
        return None
    tree, storage = Layout(Path(trees[0], name)), storages[0]
    remote = Location.resolve(storage.path_of(name), None, {})
    return storage if tree.mirror_of.exists() and is_mirror_of(tree, remote) else None


_READERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The trial whose last report has the best value of the experiment's metric."""

    trial_id: str
    metric: str
    mode: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One experiment of a listing.

    `run` numbers the runs of this name, one after another; the newest is listed; None if the
    number is not known.
    `pareto_front` has the trials that no other beats, if the run has several goals.
    Times are seconds since 1970: when the experiment began, and its last record. `size_bytes` is
    the size of all its files, None if they were not counted. `tags` are those of its RunConfig.
    `storage` is the URI of the storage that it is uploaded to, if `path` is its tree on this
    machine, else "": the state there, which a listing does not read, may be newer.
    `problem` says why it cannot be read, or is the first error, "" for none. `notices` lists
    records that cannot be used.
    """

    name: str
    path: str
    standing: Standing
    run: int | None = 1
    best: Best | None = None
    pareto_front: tuple[str, ...] = ()
    began_at: float | None = None
    updated_at: float | None = None
    size_bytes: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    notices: tuple[str, ...] = ()
    storage: str = ""

    @property
    def state(self) -> Condition:
        return self.standing.state

    def plain(self) -> dict[str, Any]:
        """The entry as JSON values."""
        plain = asdict(self)
        standing = plain.pop("standing")
        return {**plain, **standing, "trials": standing.pop("counts")}


def catalog(
    path: str | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    now: float,
    with_sizes: bool = True,
    tags: Iterable[tuple[str, str]] = (),
) -> tuple[str, list[CatalogEntry]]:
    """The place, and its experiments in the order in which they began.

    `path` is a directory or a URI that holds experiments, or an experiment; None for the place
    where `fit()` keeps them. An experiment that cannot be read is listed with the reason. With
    `tags`, only the experiments that have all of them are listed.

    Raises ExperimentNotFound if there is no such place, InvalidLocation, StorageError.
    """
    location = Location.resolve(path, None, environ)
    text = path or location.public
    entry = partial(entry_of, settings=settings, environ=environ, now=now, sizes=with_sizes)
    if is_one(location):
        entries = [entry(text)]
    else:
        with ThreadPoolExecutor(_READERS, "holdfast-ls") as pool:
            entries = list(pool.map(entry, _inside(text, location)))
    wanted = set(tags)
    known = [one for one in entries if one is not None and wanted <= one.tags.items()]
    return location.public, sorted(known, key=lambda one: (one.began_at or 0.0, one.name))


def is_one(location: Location) -> bool:
    """True if this is an experiment, rather than a place of several. Raises StorageError."""
    if location.local_path is not None:
        return is_experiment(location.local_path)
    return published_as(location) is not None


def _inside(text: str, location: Location) -> list[str]:
    """The paths of the folders in a place, in the form that `find` takes."""
    return [path_in(text, name) for name in names_in(location)]


def names_in(location: Location) -> list[str]:
    """The names of the experiments in a place; in storage, of all folders.

    Raises ExperimentNotFound if there is no such place, StorageError.
    """
    if location.local_path is not None:
        return _folders(location.local_path)
    names = [name for name in list_folder(location) if not name.startswith(".")]
    if not names:
        _check_bucket(location)
    return names


def path_in(place: str, name: str) -> str:
    """The path of an experiment in a place, in the form that `find` takes."""
    base, mark, query = place.partition("?") if "://" in place else (place, "", "")
    return f"{base.rstrip('/')}/{in_uri(base, name)}{mark}{query}"


def _check_bucket(location: Location) -> None:
    """Tell an empty prefix from a missing bucket, which is a mistake."""
    if not has_bucket(location):
        bucket = bucket_of(location.path)
        raise ExperimentNotFound(
            f"there is no bucket {bucket!r} for {location.public}", location.public
        )


def _folders(place: str) -> list[str]:
    try:
        return sorted(experiments_in(place))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ExperimentNotFound(
            f"there is no directory {place}: pass the storage_path of your experiments, or the "
            "path of one experiment",
            place,
        ) from error


def entry_of(
    path: str,
    *,
    settings: Settings,
    environ: Mapping[str, str],
    now: float,
    sizes: bool,
    hear: Callable[[ExperimentView], object] = lambda experiment: None,
) -> CatalogEntry | None:
    """The entry of a folder; None if it is not an experiment's. `hear` gets what was read."""
    location = Location.resolve(path, None, {})
    name = location.path.rstrip("/").rpartition("/")[2]
    try:
        experiment = find(path, settings, environ, asks=False)
        hear(experiment)
        # For a URI, the size of the files in storage, even if this machine has the tree.
        there = None if location.local_path is not None else location
        return described(experiment, name, now, size_of(experiment, there) if sizes else None)
    except NeverBegun as error:
        local = location.local_path
        if local is not None and current_holder(Layout(Path(local)).lock):
            at = location.public
            live = Standing(state=Condition.LIVE)
            return CatalogEntry(name=name, path=at, standing=live, began_at=now)
        state, problem = Condition.NEVER_BEGUN, str(error)
    except ExperimentNotFound as error:
        if location.local_path is None:
            return None
        state, problem = Condition.UNREADABLE, str(error)
    except (TuneError, OSError, ValueError) as error:
        state, problem = Condition.UNREADABLE, redact(str(error))
    return CatalogEntry(
        name=name, path=location.public, standing=Standing(state=state), problem=problem
    )


def described(
    experiment: ExperimentView, name: str, now: float, size_bytes: int | None
) -> CatalogEntry:
    """The entry of an experiment that has been read."""
    machine, spec = experiment.machine, experiment.machine.spec
    best = leader(machine.trials.values(), spec.metric, spec.mode)
    won = winner(machine.trials.values(), spec.metric, spec.mode)
    value = None if best is None else value_of(best, spec.metric)
    value = value if won is None else won.mean
    return CatalogEntry(
        name=name,
        path=experiment.shown,
        standing=experiment.standing(now),
        run=experiment.run,
        best=Best(
            trial_id=best.trial_id, metric=spec.metric or "", mode=spec.mode or "", value=value
        )
        if best is not None and value is not None
        else None,
        pareto_front=front_of(experiment),
        began_at=experiment.began_at,
        updated_at=machine.now,
        size_bytes=size_bytes,
        tags=spec.options.get("tags", {}),
        problem=_first_error(experiment),
        notices=experiment.notices,
        storage=experiment.storage,
    )


def _first_error(experiment: ExperimentView) -> str:
    machine = experiment.machine
    failed = (t for t in machine.trials.values() if t.status is Status.ERROR and t.error)
    first = next((trial.error.headline for trial in failed if trial.error is not None), "")
    return first or (machine.ending.message if machine.ending is not None else "")


def size_of(experiment: ExperimentView, storage: Location | None = None) -> int:
    """Bytes of all files of the experiment in this storage; by default, where it was read.

    Raises StorageError.
    """
    if storage is None and experiment.layout is not None:
        return bytes_below(os.path.realpath(experiment.layout.root))
    listed = with_store(storage or experiment.location, lambda store: store.list())
    return sum(entry.size for entry in listed)
