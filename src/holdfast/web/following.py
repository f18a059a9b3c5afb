"""Follows what browsers watch: one task for each experiment, and one for the list of them.

However many browsers watch, each record is read once. No queue belongs to a browser: its stream
asks for what has changed since the version that it sent last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from holdfast.results.following import PAUSE_PER_CPU_S
from holdfast.results.page.followed import Change, FollowedExperiment
from holdfast.results.page.place import Place
from holdfast.results.reading import ExperimentNotFound
from holdfast.runtime.tasks import TaskScope
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files import threads
from holdfast.trial.errors import TuneError
from holdfast.web.answers import as_json

R = TypeVar("R")

# A report is on the page within a second.
_LOOK_EVERY_S = 0.75
_LIST_EVERY_S = 2.0
# A page that is loaded again finds its experiment still open.
LINGER_S = 20.0
_MOST_READERS = 8


class Readers:
    """Runs blocking reads in threads, a few at a time, so that the loop never waits for one."""

    def __init__(self, tasks: TaskScope) -> None:
        self._free = asyncio.Semaphore(_MOST_READERS)
        self._tasks = tasks
        self._shared: dict[Hashable, asyncio.Future[Any]] = {}

    async def read(self, perform: Callable[[], R]) -> R:
        """Raises what `perform` raises."""
        async with self._free:
            return await threads.call(perform)

    async def read_once(self, what: Hashable, perform: Callable[[], R]) -> R:
        """As `read`. Who asks for the same while it is read waits, and gets the same result: the
        tabs of a page ask at the same time for what takes seconds."""
        shared = self._shared.get(what)
        if shared is None:
            shared = self._shared[what] = asyncio.get_running_loop().create_future()
            self._tasks.start(self._settle(what, perform, shared))
        # The end of one request, even of the first, does not end the others.
        found: R = await asyncio.shield(shared)
        return found

    async def _settle(
        self, what: Hashable, perform: Callable[[], R], shared: asyncio.Future[R]
    ) -> None:
        try:
            await settle(shared, self.read(perform))
        finally:
            del self._shared[what]


async def settle(shared: asyncio.Future[R], result: Awaitable[R]) -> None:
    """Give several requests the result of one, or its error."""
    try:
        shared.set_result(await result)
    except asyncio.CancelledError:
        shared.cancel()
        raise
    except Exception as error:  # of the requests
        shared.set_exception(error)
        shared.exception()  # they may all have ended


class Watched:
    """The common source of several streams.

    `trouble` says why there is nothing new, "" if all is well; `is_over`: it has been deleted, or
    the server ends. `changed` is set at the next change, and then replaced.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self.is_over = False
        self.changed = asyncio.Event()
        self.used_at = time.monotonic()
        self._watchers = self._readings = 0
        self._wanted = asyncio.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While somebody does, it is followed."""
        self._watchers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._watchers -= 1
            self.used_at = time.monotonic()

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """Whoever waits for a read will watch, or ask again: it is not forgotten meanwhile."""
        self._readings += 1
        try:
            yield
        finally:
            self._readings -= 1
            self.used_at = time.monotonic()

    async def look(self, *, at_once: bool = False) -> float:
        """Read what is new, `at_once` also just after another look. Returns the seconds of CPU
        that it took.

        Raises ExperimentNotFound, StorageError, OSError.
        """
        raise NotImplementedError

    @property
    def is_watched(self) -> bool:
        return self._watchers > 0

    def wake(self) -> None:
        """Let all streams see the new state."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        """Let all streams end."""
        self.is_over = True
        self.wake()

    async def follow(self, every_s: float) -> None:
        """Look again and again while somebody watches. Returns when nobody has for a while, or it
        is gone."""
        while not self.is_over:
            if not self.is_watched:
                self._wanted.clear()
                try:
                    async with asyncio.timeout(LINGER_S):
                        await self._wanted.wait()
                except TimeoutError:
                    if not self._readings and time.monotonic() - self.used_at >= LINGER_S:
                        return
                    continue
            await asyncio.sleep(max(every_s, PAUSE_PER_CPU_S * await self._look_again()))

    async def _look_again(self) -> float:
        trouble, cpu_s = "", 0.0
        try:
            cpu_s = await self.look()
        except ExperimentNotFound as error:
            self.is_over, trouble = True, str(error)
        except (StorageError, OSError) as error:
            trouble = str(error)
        if trouble != self.trouble:
            self.trouble = trouble
            self.wake()
        return cpu_s


class WatchedExperiment(Watched):
    """An experiment that somebody looks at. `change` and `facts` are those of the last look."""

    def __init__(self, experiment: FollowedExperiment, readers: Readers) -> None:
        super().__init__()
        self.experiment = experiment
        self.change: Change | None = None
        self.facts = b""
        self._trials: tuple[int, bytes] | None = None
        self._readers = readers
        self._looking = asyncio.Lock()

    async def look(self, *, at_once: bool = False) -> float:
        with self.being_read():
            return await self._look(at_once)

    async def _look(self, at_once: bool) -> float:
        async with self._looking:
            change, facts, cpu_s = await self._readers.read(lambda: self._timed(at_once))
            if change != self.change:
                self.change, self.facts = change, facts
                self.wake()
        return cpu_s

    def _timed(self, at_once: bool) -> tuple[Change, bytes, float]:
        """The state, the facts, encoded, and the CPU time that this took. In a thread."""
        began, before, facts = time.thread_time(), self.change, self.facts
        change = self.experiment.look(at_once=at_once)
        if before is None or change.facts != before.facts:
            facts = as_json(self.experiment.facts())
        return change, facts, time.thread_time() - began

    async def trials(self) -> bytes:
        """The answer of api/e/KEY/trials, encoded: it is large, and each page begins with it.
        Raises what a look raises."""
        with self.being_read():
            return await self._readers.read_once((self, "trials"), self._encoded_trials)

    def _encoded_trials(self) -> bytes:
        self.experiment.look()
        state = self.experiment.version
        if self._trials is None or self._trials[0] != state:
            self._trials = (state, as_json(self.experiment.trials()))
        return self._trials[1]

    async def trials_since(self, version: int) -> tuple[bytes | None, int]:
        """The data of the event `trials`, and the version that it leads to; encoded once for all
        streams that ask at the same time. None if the page must read everything again."""
        assert self.change is not None
        what = (self, version, self.change.version)
        return await self._readers.read_once(what, lambda: self._encoded_since(version))

    def _encoded_since(self, version: int) -> tuple[bytes | None, int]:
        found = self.experiment.changed_since(version)
        if found is None:
            return None, self.experiment.version
        return as_json(found), found["version"]


class WatchedListing(Watched):
    """The experiments of the place. `data` is the answer of the last look, encoded."""

    def __init__(self, place: Place, readers: Readers) -> None:
        super().__init__()
        self.data = b""
        self._shown: Any = None
        self._place, self._readers = place, readers

    async def look(self, *, at_once: bool = False) -> float:
        with self.being_read():
            if at_once:
                listing, data, cpu_s = await self._readers.read(self._timed)
            else:
                listing, data, cpu_s = await self._readers.read_once(self, self._timed)
        shown = {name: value for name, value in listing.items() if name != "now"}
        if shown != self._shown:
            self._shown, self.data = shown, data
            self.wake()
        return cpu_s

    def _timed(self) -> tuple[dict[str, Any], bytes, float]:
        began = time.thread_time()
        listing = self._place.listing(now=time.time())
        return listing, as_json(listing), time.thread_time() - began


class Following:
    """Everything that the browsers of one server watch. Its tasks end with the scope `tasks`."""

    def __init__(self, place: Place, tasks: TaskScope) -> None:
        self.place = place
        self.readers = Readers(tasks)
        self._tasks = tasks
        self._experiments: dict[str, WatchedExperiment] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listing: WatchedListing | None = None

    async def experiment(self, key: str) -> WatchedExperiment:
        """The experiment, from now on open for a while. Raises ExperimentNotFound, StorageError,
        OSError."""
        # A page asks for several things at once: the first of these requests reads it for all.
        async with self._opening.setdefault(key, asyncio.Lock()):
            watched = self._experiments.get(key)
            if watched is None:
                found = await self.readers.read(lambda: self.place.experiment(key))
                watched = self._experiments[key] = WatchedExperiment(found, self.readers)
                self._tasks.start(self._follow(key, watched))
        watched.used_at = time.monotonic()
        return watched

    async def open_single(self) -> None:
        """If the place is one experiment, read it before a browser asks for it."""
        if self.place.single is not None:
            with suppress(TuneError, OSError):  # the browser gets the error
                watched = await self.experiment(self.place.single)
                await watched.trials()

    async def _follow(self, key: str, watched: WatchedExperiment) -> None:
        try:
            await watched.follow(_LOOK_EVERY_S)
        finally:
            del self._experiments[key]
            watched.end()

    def listing(self) -> WatchedListing:
        """The list of experiments, from now on followed while somebody watches it."""
        if self._listing is None:
            self._listing = WatchedListing(self.place, self.readers)
            self._tasks.start(self._follow_listing(self._listing))
        return self._listing

    async def _follow_listing(self, watched: WatchedListing) -> None:
        try:
            await watched.follow(_LIST_EVERY_S)
        finally:
            self._listing = None
            watched.end()

    @property
    def is_watched(self) -> bool:
        """True while any stream is open."""
        return any(one.is_watched for one in self._all())

    async def look_a_last_time(self) -> None:
        """Let the streams show how everything has ended."""
        async with asyncio.TaskGroup() as group:
            for one in self._all():
                if one.is_watched:
                    group.create_task(_look_at_last(one))

    def end(self) -> None:
        """Let the streams of everything end."""
        for one in self._all():
            one.end()

    def _all(self) -> list[Watched]:
        listing = [] if self._listing is None else [self._listing]
        return [*self._experiments.values(), *listing]


async def _look_at_last(watched: Watched) -> None:
    with suppress(StorageError, TuneError, OSError):  # its streams end with what they have
        await watched.look(at_once=True)
