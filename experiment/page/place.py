"""The place that a page shows: one experiment, or a directory or bucket of several."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from holdfast.experiment.browse.catalog import CatalogEntry, catalog, size_of
from holdfast.experiment.browse.condition import Condition
from holdfast.experiment.browse.locate import find, published_as
from holdfast.experiment.folder.experiment_folders import is_experiment
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.page.followed import FollowedExperiment
from holdfast.experiment.page.values import json_value
from holdfast.experiment.results.read_experiment import ExperimentNotFound
from holdfast.names import shown
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.place import in_uri
from holdfast.trial.errors import TuneError

_FINAL: Final = ("TERMINATED", "ERROR")
# The followed experiments that are kept: each may hold 10,000 trials.
_MOST_FOLLOWED: Final = 4
_READERS: Final = 8


class Place:
    """All methods block, and may be called from several threads.

    `path` is a directory or URI that holds experiments, or an experiment; None for the place where
    `fit()` keeps them. `now` is in seconds since 1970.
    """

    def __init__(self, path: str | None, settings: Settings, environ: Mapping[str, str]) -> None:
        """Raises ExperimentNotFound if there is no such place, InvalidLocation, StorageError."""
        self._settings, self._environ = settings, environ
        location = Location.resolve(path, None, environ)
        self._path = path or location.public
        self.public = location.public
        """The place without credentials."""
        self._followed: OrderedDict[str, FollowedExperiment] = OrderedDict()
        self._lock = threading.Lock()
        here = location.local_path
        is_one = published_as(location) is not None if here is None else is_experiment(here)
        if here is not None and not os.path.isdir(here):
            raise ExperimentNotFound(f"there is no directory {shown(here)}", here)
        self.single = location.path.rstrip("/").rpartition("/")[2] if is_one else None
        """The key of the experiment if `path` is one, else None."""

    def listing(self, *, now: float) -> dict[str, Any]:
        """The answer of api/experiments. Raises ExperimentNotFound, StorageError."""
        entries = self._entries(now)
        return {"place": self.public, "now": now, "experiments": [_plain(one) for one in entries]}

    def sizes(self) -> dict[str, int | None]:
        """The bytes of all files of each experiment by key; None if they cannot be counted.

        Walks all files: ask once for a page. Raises ExperimentNotFound, StorageError.
        """
        names = [one.name for one in self._entries(time.time())]
        with ThreadPoolExecutor(_READERS, "holdfast-sizes") as pool:
            return dict(zip(names, pool.map(self._size, names), strict=True))

    def experiment(self, key: str) -> FollowedExperiment:
        """The experiment with this key; the same object each time, while it is in use.

        Raises ExperimentNotFound for a key that the place does not list or that cannot be read,
        StorageError, OSError.
        """
        path = self._path_of(key)
        with self._lock:
            if (known := self._followed.get(key)) is not None:
                self._followed.move_to_end(key)
                return known
        made = FollowedExperiment(
            key,
            lambda kept: find(path, self._settings, self._environ, asks=False, kept=kept),
        )
        with self._lock:
            self._followed[key] = made
            while len(self._followed) > _MOST_FOLLOWED:
                self._followed.popitem(last=False)
        return made

    def close(self) -> None:
        """Forget all experiments."""
        with self._lock:
            self._followed.clear()

    def _entries(self, now: float) -> list[CatalogEntry]:
        return catalog(self._path, self._settings, self._environ, now=now, with_sizes=False)[1]

    def _path_of(self, key: str) -> str:
        """The path of an experiment. Raises ExperimentNotFound for what is not a name."""
        if self.single is not None:
            if key == self.single:
                return self._path
        elif key and "/" not in key and "\0" not in key and not key.startswith("."):
            base, mark, query = self._path.partition("?")
            if "://" not in base:
                return f"{self._path.rstrip('/')}/{key}"
            return f"{base.rstrip('/')}/{in_uri(base, key)}{mark}{query}"
        raise ExperimentNotFound(f"{self.public} has no experiment {shown(key)}", key)

    def _size(self, key: str) -> int | None:
        try:
            path = self._path_of(key)
            location = Location.resolve(path, None, {})
            there = None if location.local_path is not None else location
            return size_of(find(path, self._settings, self._environ, asks=False), there)
        except (TuneError, OSError, ValueError):
            return None


def _plain(entry: CatalogEntry) -> dict[str, Any]:
    created = sum(entry.trials.values())
    done = sum(entry.trials.get(status, 0) for status in _FINAL)
    total = None if entry.not_created is None else created + entry.not_created
    if entry.state is Condition.FINISHED:
        total = created
    share = done / total if total else None
    progress = {"done": done, "total": total, "share": share, "left_s": None}
    plain: dict[str, Any] = json_value(entry.plain())
    return {**plain, "key": entry.name, "progress": progress}
