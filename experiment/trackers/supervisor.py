"""The controller's side of the tracker processes; it waits for none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.messages import Tell
from holdfast.experiment.callbacks.thread import names_of
from holdfast.experiment.projector.logger_callbacks import TBXLoggerCallback
from holdfast.experiment.trackers.job import TrackerJob
from holdfast.experiment.trackers.tracker import Tracker
from holdfast.experiment.trackers.undelivered import list_missing
from holdfast.experiment.user_objects.pickling import dumps
from holdfast.runtime.restarting_service import RestartingService
from holdfast.runtime.service import BackgroundService
from holdfast.runtime.stopped import Watched
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Message
from holdfast.syncer.journal.journal import Position
from holdfast.trial.trial import Trial

# How long a tracker process that gives up may take to report it on a busy machine. One that does
# not (it may still import its library) is killed, and nothing is lost.
_ANSWER_S = 5.0

Start = Callable[[Callable[[Message], None]], BackgroundService]


class TrackerProcesses:
    """One tracker process for each tracker. Used in the loop's thread only."""

    def __init__(
        self,
        jobs: Sequence[TrackerJob],
        start: Start,
        tell: Tell,
        refuse: Callable[[str], None],
        tasks: TaskScope,
    ) -> None:
        """`refuse` ends the run: a tracker that cannot be set up now never will be."""
        self._jobs = jobs
        self._begin = partial(_TrackerProcess, start=start, tell=tell, refuse=refuse, tasks=tasks)
        self._tracker_processes: list[_TrackerProcess] = []

    def open(self) -> None:
        """Start the processes. Raises OSError; `close` then ends those that were started."""
        for job in self._jobs:
            self._tracker_processes.append(self._begin(job))

    def processes(self) -> list[Watched]:
        return [found for one in self._tracker_processes for found in one.processes()]

    def follow(self, position: Position) -> None:
        """Tell the processes that the journal now ends at `position`."""
        for one in self._tracker_processes:
            one.follow(position)

    async def abandon(self) -> None:
        """Kill the processes now: a restore delivers the rest."""
        async with asyncio.TaskGroup() as group:
            for one in self._tracker_processes:
                group.create_task(one.abandon())

    async def close(
        self, position: Position, deadline_s: float, trials: Collection[Trial]
    ) -> None:
        """Let the processes deliver the rest; after `deadline_s` give up and list what is
        missing."""
        self.follow(position)
        async with asyncio.TaskGroup() as group:
            for one in self._tracker_processes:
                group.create_task(one.close(deadline_s, trials))


class _TrackerProcess:
    def __init__(
        self,
        job: TrackerJob,
        start: Start,
        tell: Tell,
        refuse: Callable[[str], None],
        tasks: TaskScope,
    ) -> None:
        self._job, self._name = job, job.name
        self._tell, self._refuse = tell, refuse
        self._is_refused = False
        self._position: Position | None = None
        self._close_by: float | None = None
        # Whether everything was delivered.
        self._done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._service = RestartingService(
            f"tracker process of {self._name}",
            lambda: start(self._hear),
            tasks=tasks,
            first=[["open", asdict(job)]],
            again=self._resend_state,
            tell=lambda text: tell(text, "warning"),
            given_up=lambda text: tell(f"{text}: {self._later}", "loss"),
        )

    def processes(self) -> list[Watched]:
        return self._service.processes()

    def follow(self, position: Position) -> None:
        self._position = position
        self._service.send(["upto", position.segment, position.offset])

    async def abandon(self) -> None:
        self._service.kill()
        await self._service.close()

    async def close(self, deadline_s: float, trials: Collection[Trial]) -> None:
        self._close_by = asyncio.get_running_loop().time() + deadline_s
        self._service.send(["close", deadline_s])
        ends: list[asyncio.Future[Any]] = [self._done, self._service.ended]
        await asyncio.wait(
            ends, timeout=deadline_s + _ANSWER_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not self._done.done():
            self._service.kill()
        await self._service.close()
        if self._is_refused:
            return
        is_complete = self._done.done() and self._done.result()
        missing = list_missing(self._job, () if is_complete else trials)
        if missing:
            self._tell(
                f"not delivered to {self._name}: {missing}. It has {deadline_s:g} s after the "
                f"end (HOLDFAST_TRACKER_DEADLINE_S). undelivered-{self._job.file}.json lists it; "
                f"{self._later}",
                "loss",
            )

    @property
    def _later(self) -> str:
        return "a restore of the experiment delivers everything in its journal"

    def _hear(self, message: Message) -> None:
        match message:
            case ["trouble", str(text)]:
                self._tell(f"{self._name}: {text}", "warning")
            case ["unfit", str(text)]:
                self._is_refused = True
                self._refuse(f"callback {self._name}.setup: {text}")
            case ["done", bool(is_complete)]:
                if not self._done.done():
                    self._done.set_result(is_complete)
            case _:
                raise ValueError(f"not a message of a tracker process: {message!r:.100}")

    def _resend_state(self) -> None:
        if self._position is not None:
            self.follow(self._position)
        if self._close_by is not None:
            left_s = self._close_by - asyncio.get_running_loop().time()
            self._service.send(["close", max(0.0, left_s)])


def jobs_of(callbacks: Sequence[Callback], shared: TrackerJob) -> list[TrackerJob]:
    """A job for each tracker among the callbacks; `shared` has the common fields.

    Raises NotPicklable, naming the attribute that cannot be sent.
    """
    trackers = [one for one in callbacks if isinstance(one, Tracker)]
    return [
        replace(
            shared,
            name=name,
            file=name.replace("[", "-").replace("]", ""),
            tracker=dumps(tracker, f"the callback {name}"),
            secrets=dumps(tracker.secrets(), f"the keys of the callback {name}"),
        )
        for name, tracker in zip(names_of(trackers), trackers, strict=True)
    ]


def check_callbacks(callbacks: Sequence[Callback], environ: Mapping[str, str]) -> None:
    """Refuse callbacks that can never work, before anything starts.

    Raises ImportError for a missing library, InvalidConfig for a missing key, NotPicklable for a
    callback that cannot be sent to its process.
    """
    for one in callbacks:
        if isinstance(one, (Tracker, TBXLoggerCallback)):
            one.check(environ)
        if isinstance(one, Tracker):
            dumps(one, f"the callback {type(one).__name__}")
