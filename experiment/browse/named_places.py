"""Finds an experiment by the name that `holdfast ls` prints, whatever the current directory is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, quote

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.experiment_folders import (
    aside_of,
    experiments_in,
    is_experiment,
    names_like,
    similar_to,
)
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.listed_place import read_listed
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.trial_folder import list_folder
from holdfast.experiment.records.journal_start import JournalUnreadable
from holdfast.experiment.records.mirror_note import is_mirror_of
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.results.read_experiment import ExperimentNotFound
from holdfast.names import listed
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location, default_storage
from holdfast.trial.errors import InvalidConfig

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
        return _below(self.text, name)

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
    """Whether a name that no experiment has is similar to one that an experiment has."""
    known = {one for place in _places(environ) for one in place.names()}
    return bool(similar_to(name, known))


def _is_here(folder: str) -> bool:
    """Whether there is an experiment, or the rest of one whose removal was interrupted."""
    return is_experiment(folder) or os.path.lexists(aside_of(Path(folder)))


def default_place(environ: Mapping[str, str]) -> str:
    """The place that `holdfast ls` lists by default: HOLDFAST_ROOT, or where `fit()` keeps
    results."""
    place = environ.get("HOLDFAST_ROOT") or default_storage(environ)
    return os.path.expanduser(place)  # so that the commands that ls prints need no quotes


def place_to_list(environ: Mapping[str, str]) -> str:
    """What `holdfast ls` lists without a path: HOLDFAST_ROOT; else the current folder or one in
    it, if a run has used that; else the default place or, if there is no such folder, the place
    that was used last."""
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
    """Whether two places are one: a URI may say where its storage is, or leave it to the
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


def _below(place: str, name: str) -> str:
    base, mark, query = place.partition("?") if "://" in place else (place, "", "")
    below = "/".join(map(quote, name.split("/"))) if "://" in place else name
    return f"{base.rstrip('/')}/{below}{mark}{query}"
