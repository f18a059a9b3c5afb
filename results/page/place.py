"""The place that a page shows: one experiment, or a directory or bucket of several."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.names import shown
from holdfast.results.catalog import (
    CatalogEntry,
    entry_of,
    is_one,
    names_in,
    path_in,
    size_of,
)
from holdfast.results.following import PAUSE_PER_CPU_S
from holdfast.results.page.entries import json_value
from holdfast.results.page.facts import summary_of
from holdfast.results.page.followed import FollowedExperiment
from holdfast.results.reading import (
    ExperimentNotFound,
    KeptRecords,
    find,
    published_as,
    with_storage,
)
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.segment import segments
from holdfast.syncer.journal.stretches import segment_size
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.lock import current_holder
from holdfast.trial.errors import TuneError

_FINAL: Final = ("TERMINATED", "ERROR")
# The followed experiments that are kept: each may hold 10,000 trials.
_MOST_FOLLOWED: Final = 4
_READERS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An entry of the list, None for a folder that is no experiment's. While `mark` stays, its
    records have not changed; it is not read again before `due_at`."""

    mark: object
    entry: dict[str, Any] | None
    due_at: float


class Place:
    """All methods block, and may be called from several threads.

    `path` is a directory or URI that holds experiments, or an experiment; None for the place where
    `fit()` keeps them. `now` is in seconds since 1970.

    `public` is the place without credentials. `may_be_missing`: a directory that a run has yet to
    create is an empty place until then.
    """

    def __init__(
        self,
        path: str | None,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        may_be_missing: bool = False,
    ) -> None:
        """Raises ExperimentNotFound if there is no such place, InvalidLocation, StorageError."""
        self._settings, self._environ = settings, environ
        self._location = location = Location.resolve(path, None, environ)
        self._path = path or location.public
        self.public = location.public
        self._awaited = may_be_missing and _has_only_parent(location.local_path)
        self._is_one = not self._awaited and is_one(location)
        if not (self._is_one or self._awaited):
            names_in(location)
        self._lock = threading.Lock()
        self._followed: OrderedDict[str, FollowedExperiment] = OrderedDict()
        self._known: dict[str, _Known] = {}

    @property
    def is_missing(self) -> bool:
        """True until a run has created the directory."""
        return self._awaited and not os.path.isdir(self._location.local_path or "")

    @property
    def single(self) -> str | None:
        """The key of the experiment if the place is one; None for a place of several."""
        if self._awaited and not self.is_missing:
            self._is_one = is_one(self._location)
            self._awaited = not (self._is_one or names_in(self._location))
        return self._location.path.rstrip("/").rpartition("/")[2] if self._is_one else None

    def listing(self, *, now: float) -> dict[str, Any]:
        """The answer of api/experiments, in the order in which the experiments began. Reads only
        those again whose records have changed. Raises ExperimentNotFound, StorageError."""
        names = self._names()
        with ThreadPoolExecutor(_READERS, "holdfast-list") as pool:
            known = dict(zip(names, pool.map(partial(self._look_at, now=now), names), strict=True))
        self._known = known
        entries = [self._with_progress(one.entry) for one in known.values() if one.entry]
        entries.sort(key=lambda entry: (entry["began_at"] or 0.0, entry["name"]))
        missing = {"is_missing": True} if self.is_missing else {}
        return {"place": self.public, "now": now, "experiments": entries, **missing}

    def sizes(self) -> dict[str, int | None]:
        """The bytes of all files of each experiment by key; None if they cannot be counted.

        Walks all files: ask once for a page. Raises ExperimentNotFound, StorageError.
        """
        names = self._names()
        with ThreadPoolExecutor(_READERS, "holdfast-sizes") as pool:
            return dict(zip(names, pool.map(self._size, names), strict=True))

    def experiment(self, key: str) -> FollowedExperiment:
        """The experiment with this key; the same object each time, while it is in use.

        Raises ExperimentNotFound for a key that the place does not list or that cannot be read,
        StorageError, OSError.
        """
        with self._lock:
            if (known := self._followed.get(key)) is not None:
                self._followed.move_to_end(key)
                return known
        if key not in self._names():
            raise ExperimentNotFound(f"{self.public} has no experiment {shown(key)}", key)
        made = FollowedExperiment(key, partial(self._found, key))
        with self._lock:
            if (known := self._followed.get(key)) is not None:  # another thread was faster
                made.close()
                return known
            self._followed[key] = made
            while len(self._followed) > _MOST_FOLLOWED:
                self._followed.popitem(last=False)[1].close()
        return made

    def close(self) -> None:
        """Forget all experiments."""
        with self._lock:
            while self._followed:
                self._followed.popitem()[1].close()

    def _found(self, key: str, kept: KeptRecords) -> ExperimentView:
        settings, environ = self._settings, self._environ
        found = find(self._real_path_of(key), settings, environ, asks=False, kept=kept)
        return with_storage(found, settings, environ)

    def _names(self) -> list[str]:
        if self.is_missing:
            return []
        single = self.single
        return [single] if single is not None else names_in(self._location)

    def _path_of(self, key: str) -> str:
        return self._path if self.single is not None else path_in(self._path, key)

    def _real_path_of(self, key: str) -> str:
        """Without a link in it: one that is there later is nobody's but an attacker's."""
        path = self._path_of(key)
        here = Location.resolve(path, None, {}).local_path
        return path if here is None else os.path.realpath(here)

    def _look_at(self, key: str, *, now: float) -> _Known:
        mark, at = self._mark_of(key), time.monotonic()
        before = self._known.get(key)
        if before is not None and (at < before.due_at or (mark and mark == before.mark)):
            return before
        used_s = time.thread_time()
        read: list[ExperimentView] = []
        entry = entry_of(
            self._path_of(key),
            settings=self._settings,
            environ=self._environ,
            now=now,
            sizes=False,
            hear=read.append,
        )
        plain = None if entry is None else _plain(key, entry, read, now)
        pause_s = PAUSE_PER_CPU_S * (time.thread_time() - used_s)
        return _Known(mark=mark, entry=plain, due_at=at + pause_s)

    def _mark_of(self, key: str) -> object:
        """Changes with each record; None if that is not known."""
        location = Location.resolve(self._path_of(key), None, {})
        try:
            if location.local_path is None:
                return published_as(location)
            layout = Layout(Path(location.local_path))
            newest = max(segments(layout.journal), default=None)
            size = 0 if newest is None else segment_size(layout.journal, newest)
            return newest, size, current_holder(layout.lock), _inode(layout.journal)
        except (StorageError, OSError):
            return None

    def _with_progress(self, entry: dict[str, Any]) -> dict[str, Any]:
        """The entry, with the better estimate of an experiment that is followed."""
        with self._lock:
            followed = self._followed.get(entry["key"])
        if followed is None or entry["state"] != Condition.LIVE:
            return entry
        progress = followed.facts()["progress"]
        newer = {name: progress[name] for name in ("share", "left_s")}
        return {**entry, "progress": {**entry["progress"], **newer}}

    def _size(self, key: str) -> int | None:
        try:
            path = self._path_of(key)
            location = Location.resolve(path, None, {})
            there = None if location.local_path is not None else location
            return size_of(find(path, self._settings, self._environ, asks=False), there)
        except (TuneError, OSError, ValueError):
            return None


def _has_only_parent(directory: str | None) -> bool:
    """True if the directory does not exist and a run can create it: its parent is there."""
    if directory is None or os.path.lexists(directory):
        return False
    return os.path.isdir(os.path.dirname(os.path.abspath(directory)))


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def _plain(
    key: str, entry: CatalogEntry, read: list[ExperimentView], now: float
) -> dict[str, Any]:
    standing = entry.standing
    created = sum(standing.counts.values())
    done = sum(standing.counts.get(status, 0) for status in _FINAL)
    total = None if standing.not_created is None else created + standing.not_created
    share, left_s = done / total if total else None, None
    if standing.is_live and read:
        summary = summary_of(Summarizer(read[0].machine), read[0], now=now)
        share, left_s = summary.share, summary.left_s
    progress = {"done": done, "total": total, "share": share, "left_s": left_s}
    plain: dict[str, Any] = json_value(entry.plain())
    return {**plain, "key": key, "progress": progress}
