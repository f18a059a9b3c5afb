"""The controller's side of one worker actor: its messages become events of the trial it hosts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.experiment.job import Assignment
from holdfast.runtime.launcher import Launcher, Worker
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event, Exited, Raised
from holdfast.scheduler.verdict import Verdict
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.errors import Failure
from holdfast.trial.lifecycle import Reported, Returned, Saved, Started


class Desk(Protocol):
    """What an actor needs of its controller."""

    launcher: Launcher

    def post(self, event: Event) -> None: ...

    def show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None: ...


class TrialActor:
    """Hosts one attempt after the other; `assignment` is the current one.

    Where the process it has cannot host the next attempt, another takes its place.
    """

    def __init__(
        self, desk: Desk, assignment: Assignment, *, grace_s: float, reusable: bool
    ) -> None:
        self.assignment = assignment
        self._reusable = reusable
        self._desk = desk
        self._grace_s = grace_s
        self._deadline: asyncio.TimerHandle | None = None
        self._halted = self._is_reused = self._is_replaced = self._is_gone = False
        self._worker = self._launch()

    @property
    def pid(self) -> int:
        return self._worker.pid

    def assign(self, assignment: Assignment) -> None:
        """Let the idle worker host another attempt."""
        self._disarm()
        self._expect(assignment)
        if self._is_gone:
            self._worker = self._launch()
        elif self._halted:
            # The order may still be on its way, and would end the attempt that comes.
            self._halted = False
            self._replace()
        else:
            self._is_reused = True
            self._worker.send(["run", assignment])

    def reply(self, verdict: Verdict) -> None:
        if verdict is not Verdict.CONTINUE:
            self._disarm()  # what was left for the step is not what is left for its end
            self._arm()
        self._worker.send(["reply", verdict.value])

    def refuse(self, text: str) -> None:
        """Let the waiting `report()` raise."""
        self._worker.send(["refused", text])

    def halt(self, *, after_step: bool = False) -> None:
        """Ask user code to end, wherever it is, and end it after the grace.

        `after_step` asks it only when the grace is over: before, the answer to its next report
        is the order.
        """
        self._halted = True
        if after_step:
            self._arm(self._interrupt)
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        self._disarm()
        self._worker.signal(signal.SIGTERM)
        self._arm()

    def release(self) -> None:
        """End the worker, which is idle."""
        self._worker.send(["exit"])
        self._arm()

    def dismiss(self, trial_id: str, attempt: int) -> None:
        """End the idle worker: the attempt that it was to host next ends with it, unheard of."""
        self.assignment = self.assignment._replace(trial_id=trial_id, attempt=attempt)
        if self._is_gone:
            self._post_exit("never started")
        else:
            self.release()

    def kill(self) -> None:
        self._worker.signal(signal.SIGKILL)

    def on_message(self, message: Message) -> None:
        try:
            self._desk_message(message)
        except (ValueError, TypeError, KeyError) as error:
            # What a worker sends is data from outside: this one can no longer be talked to.
            self._raise(f"the worker sent what is no message ({error}): {message!r:.200}")
            self.kill()

    def on_exit(self, cause: str) -> None:
        self._disarm()
        # A reused process may have died before it heard of the attempt, which is no failure of it.
        unheard = self._is_reused and not self._has_started
        if (self._is_replaced or unheard) and not self._halted:
            self._worker = self._launch()
            return
        self._is_gone = True
        self._post_exit(cause)

    def _post_exit(self, cause: str) -> None:
        trial_id, attempt = self.assignment.trial_id, self.assignment.attempt
        self._desk.post(Exited(trial_id=trial_id, attempt=attempt, cause=cause))

    def _expect(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self._has_started = False
        self._iteration = assignment.iteration

    def _replace(self) -> None:
        """Let another process host the attempt, once this one is gone."""
        self._is_replaced = True
        self.release()

    def _launch(self) -> Worker:
        self._expect(self.assignment)
        self._halted = self._is_reused = self._is_replaced = self._is_gone = False
        assignment = self.assignment
        name = f"{assignment.trial_id}.{assignment.attempt}"
        worker = self._desk.launcher.launch(name, self)
        worker.send(["run", assignment])
        return worker

    def _desk_message(self, message: Message) -> None:
        trial_id = self.assignment.trial_id
        match message:
            case ["report", attempt, iteration, metrics, timestamp, this_s, total_s, checkpoint]:
                self._count(iteration)
                self._desk.post(
                    Reported(
                        trial_id=trial_id,
                        attempt=int(attempt),
                        iteration=int(iteration),
                        metrics=_dict(metrics),
                        timestamp=float(timestamp),
                        time_this_iter_s=float(this_s),
                        time_total_s=float(total_s),
                        checkpoint=None if checkpoint is None else _record(checkpoint),
                    )
                )
            case ["log", str(stream), str(text)]:
                self._desk.show_line(self.assignment.trial_name, self.pid, stream, text)
            case ["saved", int(attempt), dict(record)]:
                self._require_start()
                self._desk.post(
                    Saved(trial_id=trial_id, attempt=attempt, checkpoint=_record(record))
                )
            case ["started", int(attempt), int(pid), str(hostname), str(node_ip)]:
                self._start(pid)
                self._desk.post(
                    Started(
                        trial_id=trial_id,
                        attempt=attempt,
                        pid=pid,
                        hostname=hostname,
                        node_ip=node_ip,
                    )
                )
            case ["stopped", int()] if not self._halted:
                self._require_start()
                self._raise("the worker was told to end by a signal that holdfast did not send")
                self._arm()
            case ["returned" | "stopped", int(attempt)]:
                self._require_start()
                self._disarm()
                if not self._reusable:
                    self._arm()
                self._desk.post(Returned(trial_id=trial_id, attempt=attempt))
            case ["raised", int(attempt), dict(failure)]:
                self._arm()
                self._desk.post(
                    Raised(trial_id=trial_id, attempt=attempt, failure=Failure(**failure))
                )
            case ["unfit", int()]:
                self._replace()
            case _:
                raise ValueError("unknown")

    def _start(self, pid: int) -> None:
        """Raises ValueError, as those below do, for what would break the trial's history."""
        if self._has_started:
            raise ValueError("it had started")
        self._has_started = True
        self._worker.pid = pid

    def _require_start(self) -> None:
        if not self._has_started:
            raise ValueError("it had not started")

    def _count(self, iteration: object) -> None:
        self._require_start()
        if iteration != self._iteration + 1:
            raise ValueError(f"iteration {self._iteration + 1} was to come")
        self._iteration += 1

    def _raise(self, text: str) -> None:
        assignment = self.assignment
        failure = Failure(kind="lost", type_name="WorkerLost", message=text, pid=self.pid)
        self._desk.post(
            Raised(trial_id=assignment.trial_id, attempt=assignment.attempt, failure=failure)
        )

    def _arm(self, then: Callable[[], None] | None = None) -> None:
        """From now on the worker has the grace period to end; else it is killed, or `then`."""
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._grace_s, then or self.kill)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("metrics are no dict")
    return value


def _record(plain: Any) -> CheckpointRecord:
    return CheckpointRecord(
        index=int(plain["index"]),
        iteration=int(plain["iteration"]),
        attempt=int(plain["attempt"]),
        files=int(plain["files"]),
        size_bytes=int(plain["size_bytes"]),
        time_total_s=float(plain["time_total_s"]),
    )
