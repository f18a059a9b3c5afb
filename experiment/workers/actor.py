"""The controller's side of one worker: turns its messages into events of the trial that it runs,
and detects that it hangs.

If this process was suspended, the workers may have been, too, or have sent messages that are not
read yet: they get the whole time again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial

from holdfast.errors import Remedy
from holdfast.experiment.worker.job import Assignment
from holdfast.experiment.workers import worker_messages
from holdfast.experiment.workers.hosts import ActorHost, WorkerTimeouts
from holdfast.experiment.workers.worker_messages import AttemptMessages
from holdfast.late import Timer, is_late
from holdfast.names import shown
from holdfast.runtime import process_control
from holdfast.runtime.launcher import ExitCause, Grant, WorkerHandle
from holdfast.runtime.learning import checked
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message
from holdfast.scheduler.effects import Verdict
from holdfast.scheduler.events import EndOrdered, Exited, Raised
from holdfast.trial.errors import LOST_TYPES, Failure, ProcessFailureKind
from holdfast.trial.events import Measured, Returned, Unread
from holdfast.trial.resources import Usage


class HangTimer:
    """Detects that user code has run for too long without a report.

    A timer for each report would cost it 2 µs. This one continues to run, and checks at its end
    whether a report came.
    """

    def __init__(self, timeout_s: float | None, on_end: Callable[[], None]) -> None:
        """`on_end` is called after `timeout_s` seconds of silence; None for never."""
        self._timeout_s = timeout_s
        self._on_end = on_end
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to measure: user code runs from now on."""
        if self._timeout_s is None:
            return
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._timer is None:
            self._await(self._timeout_s, self._timeout_s)

    def end(self) -> None:
        """Stop measuring: user code waits for an answer."""
        self._since = None

    def _await(self, left_s: float, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + left_s
        self._timer = loop.call_at(due, self._look, due, timeout_s)

    def _look(self, due: float, timeout_s: float) -> None:
        self._timer = None
        if self._since is None:
            return  # the next `begin` starts it again
        now = asyncio.get_running_loop().time()
        if is_late(due, now):
            self._since = now
        left_s = self._since + timeout_s - now
        if left_s <= 0:
            self._since = None
            self._on_end()
        else:
            self._await(left_s, timeout_s)


_SHOWN_PARTS = 5
# Messages that arrive while user code runs: they do not show that it makes progress.
_ASIDE = frozenset({"log", "address", "gather", "preempting", "imported", "machines", "reported"})
# What only ranks send, for their group.
_OF_RANKS = frozenset(
    {"address", "gather", "merged", "merge_failed", "preempting", "reported", "validated"}
)
_PREEMPTED = "its worker process got a SIGTERM, not from holdfast"
# The usage of an attempt is recorded at growing intervals, of at most this.
_LONGEST_S = 60.0


class TrialActor:
    """Runs one attempt after the other; `assignment` is the current one.

    If its process cannot run the next attempt, another process replaces it. Its host gets the
    events: the `WorkerPool`, or for a rank its `WorkerGroup`. On the other side of the connection
    is `holdfast.experiment.worker.session`.
    """

    def __init__(
        self,
        host: ActorHost,
        assignment: Assignment,
        *,
        timeouts: WorkerTimeouts,
        reusable: bool,
        is_rank: bool = False,
        enforces_memory: bool = False,
    ) -> None:
        """`is_rank`: the worker stages a part of its group's checkpoint. `enforces_memory`: it may
        use no more memory than its trial requests."""
        self.assignment = assignment
        self._is_rank = is_rank
        self._enforces_memory = enforces_memory
        self._usage = AttemptUsage(is_rank=is_rank)
        self._reusable = reusable
        self._host = host
        self._timeouts = timeouts
        self._deadline: Timer | None = None
        self._hang_timer = HangTimer(timeouts.hang_timeout_s, self._on_hang)
        self._halted = self._is_reused = self._is_replaced = False
        self._is_gone = self._is_disowned = False
        self._hung = self._preempted = ""
        self._worker = self._launch()

    @property
    def pid(self) -> int:
        return self._worker.pid

    def assign(self, assignment: Assignment) -> None:
        """Let the idle worker run another attempt."""
        self._disarm()
        self._post_usage()
        self._begin_attempt(assignment)
        if self._is_gone:
            self._worker = self._launch()
        elif self._halted:
            # The order may still be on its way, and would end the next attempt.
            self._halted = False
            self._replace()
        else:
            self._is_reused = True
            self._usage.begin(is_reused=True)
            self._worker.send(["run", assignment])

    def reply(self, verdict: Verdict) -> None:
        if verdict not in (Verdict.CONTINUE, Verdict.SAVE):
            self._disarm()  # its end has its own grace, apart from that of the step
            self._arm()
        self._hang_timer.begin()
        self._worker.send(["reply", verdict])

    def refuse(self, text: str) -> None:
        """Let the waiting `report()` raise."""
        self._hang_timer.begin()
        self._worker.send(["refused", text])

    def halt(self, *, after_step: bool = False) -> None:
        """Ask user code to end, wherever it is; kill the worker after the grace.

        With `after_step`, user code is asked only when the grace is over. Until then, the answer
        to its next report is the order.
        """
        self._halted = True
        if after_step:
            self._arm(self._interrupt)
        else:
            self._interrupt()

    def preempt(self, why: str) -> None:
        """Ask user code to save a checkpoint, and interrupt it if it does not end in time."""
        self._preempted = why
        self._worker.signal(signal.SIGTERM)
        self._arm(self._interrupt, self._timeouts.preemption_grace_s)

    def _interrupt(self) -> None:
        self._disarm()
        self._worker.signal(process_control.STOP)
        self._arm()

    def send(self, message: Message) -> None:
        """Send the worker a message for its session."""
        self._worker.send(message)

    def hang(self, told: str) -> None:
        """Let the worker write its stack to its stderr and end; kill it if it does not."""
        self._hung = told
        self._worker.signal(process_control.DUMP)
        self._arm()

    def _on_hang(self) -> None:
        timeout_s = self._timeouts.hang_timeout_s
        self.hang(f"reported nothing for hang_timeout_s={timeout_s:g} s")

    def release(self) -> None:
        """End the worker, which is idle."""
        self._worker.send(["exit"])
        self._arm()

    def dismiss(self, trial_id: str, attempt: int) -> None:
        """End the idle worker, and the attempt that it would have run next."""
        self.assignment = self.assignment._replace(trial_id=trial_id, attempt=attempt)
        if self._is_gone:
            self._post_exit("never started")
        else:
            self.release()

    def kill(self, why: str) -> None:
        """Kill the worker. `why` follows the words "holdfast killed it:"."""
        self._worker.kill(why)

    def disown(self) -> None:
        """End the worker and ignore its messages: its trial could not be started."""
        self._is_disowned = True
        self.kill("its trial could not be started")

    def on_message(self, message: Message) -> None:
        if self._is_disowned:
            return
        if message[0] not in _ASIDE:
            self._hang_timer.end()
        try:
            said = worker_messages.MESSAGES.find(message)
            if said is None:
                self._on_unusual(message)
            else:  # nearly all, and patterns take longer
                self._on_said(said)
        except Exception as error:
            # A worker's message is data from outside, and handling it may raise anything. Only
            # this worker is killed.
            why = error if isinstance(error, ValueError | TypeError) else repr(error)
            # Not all of it: the text of a large one would hold up the loop.
            what = ", ".join(map(shown, message[:_SHOWN_PARTS]))
            self._post_raised(f"the worker sent an invalid message ({why}): {what}")
            self.kill("it sent an invalid message")

    def on_used(self, used: Used) -> None:
        measured = self._usage.so_far(self.assignment, used)
        if measured is not None and not self._is_disowned:
            self._host.post(measured)

    def on_exit(self, ending: ExitCause) -> None:
        self._disarm()
        self._hang_timer.end()
        if self._is_disowned:
            return
        self._post_usage(ending.used)
        # A reused process may have died before it got the attempt: then the attempt has not
        # failed.
        unheard = self._is_reused and not self._messages.has_started
        if (self._is_replaced or unheard) and not self._halted:
            self._launch_replacement()
            return
        self._is_gone = True
        if self._hung:
            stack = (
                "is in its stderr"
                if ending.signum == process_control.DUMP
                else "could not be written"
            )
            self._post_exit(f"{self._hung}; its stack {stack}", "hang")
        else:
            self._post_exit(ending.cause, _kind_of(ending))

    def _post_exit(self, cause: str, kind: ProcessFailureKind = "lost") -> None:
        trial_id, attempt = self.assignment.trial_id, self.assignment.attempt
        self._host.post(Exited(trial_id=trial_id, attempt=attempt, cause=cause, kind=kind))

    def _post_usage(self, used: Used | None = None) -> None:
        measured = self._usage.at_end(self.assignment, used)
        if measured is not None:
            self._host.post(measured)

    def _begin_attempt(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self._messages = AttemptMessages(assignment, is_rank=self._is_rank)
        self._hang_timer.begin()

    def _replace(self) -> None:
        """Let another process run the attempt once this one is gone."""
        self._is_replaced = True
        self.release()

    def _launch_replacement(self) -> None:
        try:
            self._worker = self._launch()
        except Exception as error:  # no caller could fail the trial for it
            self._is_gone = True
            self._post_raised(f"another worker cannot be started: {error!r:.200}")
            self._post_exit("never started")

    def _launch(self) -> WorkerHandle:
        self._begin_attempt(self.assignment)
        self._halted = self._is_reused = self._is_replaced = False
        self._is_gone = False
        self._hung = self._preempted = ""
        assignment = self.assignment
        name = f"{assignment.trial_id}.{assignment.attempt}.{assignment.rank}"
        self._usage.begin(is_reused=False)
        worker = self._host.launcher.launch(
            name, self, node=assignment.node.name, grant=self._grant()
        )
        try:
            worker.send(["run", assignment])
        except BaseException:
            self._worker = worker
            self.disown()
            raise
        return worker

    def _grant(self) -> Grant:
        memory = 0.0
        if self._enforces_memory:
            memory = amount_of(self.assignment, "memory", is_rank=self._is_rank)
        return Grant(gpus=tuple(self.assignment.gpus), memory_bytes=int(memory))

    def _on_unusual(self, message: Message) -> None:
        match message:
            case ["imported", names, took_s]:
                self._host.launcher.learn(*checked(names, took_s))
            case ["unread", lines] if type(lines) is int and 0 < lines < 1 << 40:
                self._host.post(Unread(trial_id=self.assignment.trial_id, lines=lines))
            case ["machines"]:
                self._worker.send(["machines", [list(one) for one in self._host.machines()]])
            case [str(word), *_] if word in _OF_RANKS:
                self._host.on_rank_message(message)
            case _:
                raise ValueError("unknown")

    def _on_said(self, said: worker_messages.WorkerMessage) -> None:
        if isinstance(said, worker_messages.WorkerOutput):
            for line in said.text.split("\n"):
                self._host.show_line(self.assignment.trial_name, self.pid, said.stream, line)
            return
        # Like those below, raises ValueError for a message that contradicts the history.
        if said.attempt != self.assignment.attempt:
            worker_messages.exactly(said.attempt, "the attempt", self.assignment.attempt)
        trial_id, attempt = self.assignment.trial_id, said.attempt
        match said:
            case worker_messages.WorkerReport():
                if said.checkpoint and (problem := self._refusal()):
                    self._messages.count(said)
                    self.refuse(problem)  # nobody would find the checkpoint
                    return
                self._host.post(self._messages.reported(said))
            case worker_messages.WorkerSaved():
                self._host.post(self._messages.saved(said))
            case worker_messages.WorkerStarted():
                self._worker.confirm(said.pid)
                started = self._messages.started(said)
                self._hang_timer.begin()
                self._host.post(started)
            case worker_messages.AttemptRaised():
                failure = worker_messages.failure(
                    said.failure, pid=self.pid, node=self.assignment.node.name
                )
                self._arm()
                if failure.kind == "setup" and not (failure.node or self._is_rank):
                    # It is the experiment's folder: every other trial would fail, too.
                    self._host.post(_unusable(failure))
                    return
                self._host.post(Raised(trial_id=trial_id, attempt=attempt, failure=failure))
            case worker_messages.AttemptOver(name="unfit"):
                self._replace()
            case worker_messages.AttemptOver(name=name):
                self._messages.require_start()
                if name not in ("returned", "pruned") and not self._halted:
                    self._arm()
                    self._post_raised(self._preempted or _PREEMPTED, "preempted")
                    return
                self._disarm()
                if not self._reusable:
                    self._arm()
                pruned = name == "pruned"
                self._host.post(Returned(trial_id=trial_id, attempt=attempt, pruned=pruned))

    def _refusal(self) -> str:
        """Why a checkpoint cannot be stored from this worker's node; "" if it can. The group of a
        rank asks this for all of its ranks."""
        node = self.assignment.node.name
        return self._host.refusal(node) if node and not self._is_rank else ""

    def _post_raised(self, text: str, kind: ProcessFailureKind = "lost") -> None:
        assignment = self.assignment
        failure = Failure(
            kind=kind,
            type_name=LOST_TYPES[kind],
            message=text,
            pid=self.pid,
            node=assignment.node.name,
        )
        self._host.post(
            Raised(trial_id=assignment.trial_id, attempt=assignment.attempt, failure=failure)
        )

    def _arm(self, then: Callable[[], None] | None = None, grace_s: float | None = None) -> None:
        """Give the worker the grace period to end; then kill it, or call `then`."""
        if self._deadline is None:
            seconds = self._timeouts.grace_s if grace_s is None else grace_s
            late = f"it had not ended within {seconds:g} s"
            then = then or partial(self.kill, late)
            self._deadline = Timer(asyncio.get_running_loop(), seconds, then)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _kind_of(ending: ExitCause) -> ProcessFailureKind:
    """The kind of failure of an exit, unless the attempt had ended before."""
    if ending.is_out_of_memory:
        return "memory"
    return "preempted" if ending.signum == signal.SIGTERM else "lost"


def _unusable(failure: Failure) -> EndOrdered:
    text = (
        f"{failure.message}. The run has stopped, and no trial has failed by this. Make the "
        f"folder writable, or free some space"
    )
    return EndOrdered(reason="abort", message=text, remedy=Remedy.RESUME)


class AttemptUsage:
    """The usage of the current attempt of one worker. A reused process has run others before."""

    def __init__(self, *, is_rank: bool) -> None:
        self._is_rank = is_rank
        self._before: Used | None = None
        self._last: Used | None = None
        self._due_s = 0.0

    def begin(self, *, is_reused: bool) -> None:
        """The next attempt begins, in a new process unless that `is_reused`."""
        self._before = self._last if is_reused else None
        self._last = self._before
        self._due_s = 0.0

    def so_far(self, assignment: Assignment, used: Used) -> Measured | None:
        """The event, if one is due."""
        self._last = used
        measured = self._measured(assignment, used)
        wall_s = measured.usage.wall_s
        if wall_s < self._due_s:
            return None
        self._due_s = wall_s + min(wall_s, _LONGEST_S)
        return measured

    def at_end(self, assignment: Assignment, used: Used | None = None) -> Measured | None:
        """The event at the attempt's end, from the last sample unless `used` is known. None if
        nothing is known."""
        used = used or (None if self._last is self._before else self._last)
        if used is None:
            return None
        measured = self._measured(assignment, used)
        self._before = self._last = used  # it is not told again
        return measured

    def _measured(self, assignment: Assignment, used: Used) -> Measured:
        before = self._before
        wall_s = round(max(0.0, used.wall_s - (before.wall_s if before else 0.0)), 3)
        cpu_s = round(max(0.0, used.cpu_s - (before.cpu_s if before else 0.0)), 3)
        rate = used.gpu_utilisation
        usage = Usage(
            attempt=assignment.attempt,
            wall_s=wall_s,
            cpu_s=cpu_s,
            memory_bytes=used.memory_bytes,
            gpu_s=wall_s * amount_of(assignment, "GPU", is_rank=self._is_rank),
            gpu_memory_bytes=used.gpu_memory_bytes,
            gpu_utilisation=None if rate is None else round(rate, 4),
        )
        return Measured(trial_id=assignment.trial_id, usage=usage)


def amount_of(assignment: Assignment, resource: str, *, is_rank: bool) -> float:
    """How much of a resource the worker has: a rank has its own bundle."""
    several = [assignment.own_bundle] if is_rank else assignment.bundles
    return sum(bundle.get(resource, 0.0) for bundle in several)
