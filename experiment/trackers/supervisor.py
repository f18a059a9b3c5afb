"""The controller's side of the tracker processes; it waits for none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.thread import Tell, names_of
from holdfast.experiment.trackers.delivery import (
    Account,
    Mark,
    TrackerJob,
    decode_accounts,
    shown_range,
)
from holdfast.experiment.trackers.tracker import Tracker
from holdfast.experiment.user_objects.pickling import dumps
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import BackgroundService, RestartingService
from holdfast.runtime.tasks import TaskScope, first_of
from holdfast.runtime.wire import Message
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.store import read_json
from holdfast.trial.trial import Trial

# How long a tracker process that gives up may take to report it on a busy machine. One that does
# not (it may still import its library) is killed, and nothing is lost.
_ANSWER_S = 5.0
# At the end, a tracker that has not answered its first call gets its deadline again, at most so
# often, while it works: MLflow creates 30 tables in a new SQLite file, and if it is interrupted
# there, the next process begins with the first one.
_OPENING_DEADLINES = 4
# Its share of a CPU then: it has a low priority on a machine that may be busy.
_WORKS_SHARE = 0.01

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

    def waiting(self) -> list[str]:
        """The names of those that have not delivered everything yet."""
        return [one.name for one in self._tracker_processes if not one.has_ended]

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
        self,
        position: Position,
        deadline_s: float,
        trials: Collection[Trial],
        *,
        is_patient: bool = True,
    ) -> None:
        """Let the processes deliver the rest; after `deadline_s` give up and list what is missing.

        If `is_patient`, the deadline begins for each once its service has answered the first call,
        or no longer works on that.
        """
        self.follow(position)
        async with asyncio.TaskGroup() as group:
            for one in self._tracker_processes:
                group.create_task(one.close(deadline_s, trials, is_patient=is_patient))


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
        # Whether the tracker has answered a call: its library is imported, its service is open.
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._service = RestartingService(
            f"tracker process of {self._name}",
            lambda: start(self._on_message),
            tasks=tasks,
            first=[["open", asdict(job)]],
            again=self._resend_state,
            tell=lambda text: tell(text, "warning"),
            given_up=lambda text: tell(f"{text}: {self._later}", "loss"),
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def has_ended(self) -> bool:
        return self._done.done() or self._service.ended.done()

    def processes(self) -> list[Watched]:
        return self._service.processes()

    def follow(self, position: Position) -> None:
        self._position = position
        self._service.send(["upto", position.segment, position.offset])

    async def abandon(self) -> None:
        self._service.kill()
        await self._service.close()

    async def close(
        self, deadline_s: float, trials: Collection[Trial], *, is_patient: bool
    ) -> None:
        began_at, left_s = asyncio.get_running_loop().time(), deadline_s
        if is_patient and not self._answered.done():
            self._order_end(deadline_s * _OPENING_DEADLINES)
            left_s = deadline_s if await self._opens(deadline_s) else 0.0
        self._order_end(left_s)
        await self._ends(left_s + _ANSWER_S)
        if not self._done.done():
            self._service.kill()
        await self._service.close()
        if self._is_refused:
            return
        is_complete = self._done.done() and self._done.result()
        missing = list_missing(self._job, () if is_complete else trials)
        if missing:
            took_s = asyncio.get_running_loop().time() - began_at
            why = self._why(deadline_s, took_s)
            self._tell(f"not delivered to {self._name}: {missing}. {why}", "loss")

    async def _opens(self, deadline_s: float) -> bool:
        """True if the tracker answers, or ends, before it stops working on that."""
        used_s = self._service.cpu_time_s
        for _ in range(_OPENING_DEADLINES):
            if await self._ends(deadline_s, self._answered):
                return True
            before_s, used_s = used_s, self._service.cpu_time_s
            if used_s - before_s < _WORKS_SHARE * deadline_s:
                break
        return False

    async def _ends(self, timeout_s: float, *others: asyncio.Future[Any]) -> bool:
        """True if the tracker, or one of `others`, is done before the timeout."""
        ends: list[asyncio.Future[Any]] = [self._done, self._service.ended, *others]
        return await first_of(ends, timeout_s)

    def _order_end(self, deadline_s: float) -> None:
        self._close_by = asyncio.get_running_loop().time() + deadline_s
        self._service.send(["close", deadline_s])

    def _why(self, deadline_s: float, took_s: float) -> str:
        variable = "HOLDFAST_TRACKER_DEADLINE_S"
        cause = f"It has {deadline_s:g} s after the end ({variable})"
        if not self._answered.done():
            cause = (
                f"After {took_s:.0f} s it was still opening {self._job.target or 'the service'}: "
                f"no row accepted yet"
            )
        longer_s = max(1, _OPENING_DEADLINES * deadline_s)
        command = self._job.resume_command
        how = f"{variable}={longer_s:g} {command}" if command else self._later
        return f"{cause}. undelivered-{self._job.file}.json lists it; to deliver it: {how}"

    @property
    def _later(self) -> str:
        return "a restore of the experiment delivers everything in its journal"

    def _on_message(self, message: Message) -> None:
        match message:
            case ["trouble", str(text)]:
                self._tell(f"{self._name}: {text}", "warning")
            case ["answered"]:
                if not self._answered.done():
                    self._answered.set_result(None)
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
    trackers = [one for one in callbacks if isinstance(one, Tracker) and not one.is_here]
    return [
        replace(
            shared,
            name=name,
            file=name.replace("[", "-").replace("]", ""),
            target=tracker.target(),
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
        if isinstance(one, Tracker):
            one.check(environ)
            dumps(one, f"the callback {type(one).__name__}")


# -- what a tracker has not received at the end of a run ------------------------------------------
# Computed from the progress of the tracker and of each trial. So it takes no longer if more is
# missing, and needs no process that could have died.


def list_missing(job: TrackerJob, trials: Iterable[Trial]) -> str:
    """Write the list to its file, or remove the file if nothing is missing. Returns the list as
    text.

    The tracker process must have ended.
    """
    try:
        data = read_json(job.layout.tracker_cursor(job.file))
        accounts = decode_accounts(data, job.experiment_id)
    except (OSError, ValueError):
        accounts = {}  # then the next tracker process sends everything again
    missing = list(undelivered(accounts, trials))
    path = job.layout.undelivered(job.file)
    with suppress(OSError):  # the returned text says it, too
        if missing:
            text = json.dumps({"tracker": job.name, "undelivered": missing}, indent=1)
            write_atomic(path, text.encode())
        else:
            path.unlink(missing_ok=True)
    return as_text(missing)


def undelivered(
    accounts: Mapping[str, Account], trials: Iterable[Trial]
) -> Iterator[dict[str, Any]]:
    """For each trial, the iterations that the tracker has not acknowledged, or refused, and
    why."""
    for trial in trials:
        account = accounts.get(trial.trial_id, Account())
        mark = account.delivered
        iterations = list(_behind(mark, trial))
        is_end_due = trial.status.is_final and not mark.is_end
        if iterations or account.refused or is_end_due or trial.attempt > mark.attempt:
            yield {
                "trial": trial.trial_id,
                "name": trial.spec.name,
                "iterations": iterations,
                "refused": [{"iterations": str(s), "why": s.why} for s in account.refused],
                "only_its_end": not iterations and not account.refused,
            }


def _behind(mark: Mark, trial: Trial) -> Iterator[str]:
    """The iterations after a mark. The trial does not know how far earlier attempts came."""
    of = f" (attempt {trial.attempt})" if trial.attempt > 1 else ""
    first = mark.iteration + 1
    if mark.attempt < trial.attempt:
        first = trial.resumed_from + 1
        if mark.attempt and not mark.is_end:
            yield f"{mark.iteration + 1} and later (attempt {mark.attempt})"
        between = mark.attempt + 1, trial.attempt - 1
        if between[0] <= between[1]:
            yield f"all (attempt {shown_range(*between)})"
    if first <= trial.iteration:
        yield f"{shown_range(first, trial.iteration)}{of}"


def as_text(missing: Sequence[Mapping[str, Any]], limit: int = 5) -> str:
    """The list as one line of text."""
    parts = []
    for trial in missing[:limit]:
        spans = [*trial["iterations"], *(refused["iterations"] for refused in trial["refused"])]
        shown = ", ".join(spans[:limit]) + (" ..." if len(spans) > limit else "")
        parts.append(f"{trial['name']}: {'iterations ' + shown if spans else 'its start or end'}")
    rest = f"; and {len(missing) - limit} other trials" if len(missing) > limit else ""
    return "; ".join(parts) + rest
