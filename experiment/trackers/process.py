"""A tracker process: the tracker in the main thread, and in another one the loop that reads the
journal, has the tracker called, and records what it acknowledged.

Reports that wait for a slow tracker wait in the journal: the process holds only a window of it. If
it dies, the next one continues after the last acknowledged call.
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.trial_view import Surroundings
from holdfast.experiment.records.recovery import Fold, subject_of
from holdfast.experiment.records.rows import newest_row, shown_config
from holdfast.experiment.records.snapshots import Snapshot, load_newest_snapshot
from holdfast.experiment.trackers.delivery import (
    START,
    Account,
    DeliveryState,
    DeliveryStatus,
    RetryDelays,
    TrackerCall,
    TrackerJob,
    decode_accounts,
    encode_state,
    reached,
)
from holdfast.experiment.trackers.tracker import Told, TrackedTrial, Tracker
from holdfast.forked import children_end_here
from holdfast.runtime.process_control import children_give_way, give_way
from holdfast.runtime.transport import Channel
from holdfast.scheduler.events import Recalled
from holdfast.scheduler.machine import Machine
from holdfast.schema import UnreadableRecord
from holdfast.syncer.files.durable import replace_file
from holdfast.syncer.journal.journal import Position, segment_name
from holdfast.syncer.stores.store import read_json
from holdfast.text.errors import named

# A thousand rows of ten metrics; the batch is what a tracker sends in one request.
_WINDOW_BYTES: Final = 1 << 18
_BATCH: Final = 200
# Rows are collected this long, so that a tracker sends few requests and leaves the CPU to
# training.
_LINGER_S: Final = 0.25
_KEPT_EACH_S: Final = 0.5
_SILENT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The outcome of a batch.

    `taken` is how many calls the tracker took (in order) and flushed; it `held` back these
    trials; `error` is what went wrong with the next call.
    """

    taken: int
    held: frozenset[str] = frozenset()
    error: str = ""
    is_refusal: bool = False


class CallsTracker(Protocol):
    """Calls the tracker in another thread.

    `tell` and `finish` return at once. The answers are `["outcome", BatchOutcome]` and
    `["finished", BatchOutcome]`.
    """

    def tell(self, batch: Sequence[TrackerCall]) -> None: ...

    def finish(self) -> None:
        """Call `on_experiment_end`, because no batch follows."""


class Stopwatch(Protocol):
    """A monotonic clock in seconds, and random numbers from 0 to 1."""

    def now(self) -> float: ...

    def chance(self) -> float: ...


class DeliveryLoop:
    """Decides when to call the tracker.

    Call it in turns: `receive` with each message, then `act`, then wait at most `wait_s`.
    """

    def __init__(
        self,
        job: TrackerJob,
        calls: CallsTracker,
        stopwatch: Stopwatch,
        say: Callable[[list[Any]], None],
        *,
        delays: RetryDelays | None = None,
    ) -> None:
        """`say` sends to the controller: `["trouble", text]`, and once `["done", whether all was
        delivered]`."""
        self._job = job
        self._layout = job.layout
        self._cursor = job.layout.tracker_cursor(job.file)
        self._calls = calls
        self._watch = stopwatch
        self._say = say
        self._standing = DeliveryStatus(delays=delays or RetryDelays())
        self._upto = self._seen = Position(job.begins)
        self._pending: deque[TrackerCall] = deque()
        self._state = self._load()
        self._busy_since: float | None = None
        self._not_before = 0.0
        self._kept_at = stopwatch.now()
        self._is_kept = True
        self._is_troubled = self._is_finished = False
        self._told_kinds: set[str] = set()
        self._close_by: float | None = None
        self.is_done = False

    # -- what has happened ----------------------------------------------------------------------

    def receive(self, message: Sequence[Any]) -> None:
        """Handle a message: `["upto", segment, offset]` or `["close", seconds]` of the controller,
        or an outcome."""
        match message:
            case ["upto", int(segment), int(offset)]:
                self._upto = max(self._upto, Position(segment, offset))
            case ["close", float() | int() as deadline_s]:
                self._close_by = self._watch.now() + deadline_s
                self._standing = self._standing.hurried()
                self._not_before = 0.0
            case ["outcome", BatchOutcome() as outcome]:
                self._busy_since = None
                self._on_outcome(outcome)
            case ["finished", BatchOutcome() as outcome]:
                self._busy_since = None
                self._on_finished(outcome)
            case unknown:
                raise ValueError(f"a tracker process was sent {unknown!r:.200}")

    def act(self) -> None:
        """Do everything that is due now."""
        now = self._watch.now()
        if self._close_by is not None and now >= self._close_by:
            self._end(is_complete=False)
            return
        self._watch_silence(now)
        if self._busy_since is None and now >= self._due_at:
            self._send_next(now)
        if not self._is_kept and now >= self._kept_at + _KEPT_EACH_S:
            self._keep()

    @property
    def wait_s(self) -> float | None:
        """Seconds until something is due; None for no limit."""
        now = self._watch.now()
        due = [] if self._close_by is None else [self._close_by]
        if self._busy_since is not None and not self._is_troubled:
            due.append(self._busy_since + _SILENT_S)
        if self._busy_since is None and (self._pending or self._has_more):
            due.append(self._due_at)
        if not self._is_kept:
            due.append(self._kept_at + _KEPT_EACH_S)
        return max(0.0, min(due) - now) if due else None

    @property
    def _due_at(self) -> float:
        return max(self._standing.not_before, self._not_before)

    # -- towards the tracker --------------------------------------------------------------------

    def _send_next(self, now: float) -> None:
        while not self._pending and self._has_more:
            self._read()
        if self._pending:
            # After a failure one at a time, to find the one that is refused.
            size = 1 if self._standing.failures or self._standing.is_refusing else _BATCH
            batch = [self._pending[at] for at in range(min(size, len(self._pending)))]
            self._busy_since = now
            self._calls.tell(batch)
        elif self._close_by is not None and not self._is_finished:
            self._is_finished = True
            self._busy_since = now
            self._calls.finish()

    def _on_outcome(self, outcome: BatchOutcome) -> None:
        now = self._watch.now()
        for _ in range(outcome.taken):
            self._state.mark_given(self._pending.popleft())
        if outcome.error:
            self._note_failure(outcome, now)
        elif outcome.taken:
            self._standing = self._standing.after_success()
            self._is_troubled = False
        self._state.acknowledge(outcome.held)
        self._is_kept = False
        if self._close_by is None and not self._pending:
            self._not_before = now + _LINGER_S

    def _note_failure(self, outcome: BatchOutcome, now: float) -> None:
        self._is_troubled = True
        kind = outcome.error.partition(":")[0]
        if kind not in self._told_kinds:
            self._told_kinds.add(kind)
            self._say(["trouble", f"{outcome.error}; the run continues, and it will be retried"])
        if outcome.taken:
            self._standing = self._standing.after_success()
        if outcome.is_refusal and self._pending and self._standing.is_last_try:
            self._state.refuse(self._pending.popleft(), outcome.error)
            self._standing = self._standing.after_refusal()
        else:
            self._standing = self._standing.after_failure(now, self._watch.chance())

    def _watch_silence(self, now: float) -> None:
        since = self._busy_since
        if since is not None and now >= since + _SILENT_S and not self._is_troubled:
            self._is_troubled = True
            self._say(
                ["trouble", f"it has not answered for {_SILENT_S:g} s; the run continues, and "
                 "undelivered reports wait in the journal"]
            )  # fmt: skip

    # -- the journal ------------------------------------------------------------------------------

    @property
    def _has_more(self) -> bool:
        return self._seen < self._upto

    @cached_property
    def _fold(self) -> Fold:
        fold = fold_for(self._state.accounts, self._job)
        self._seen = max(self._seen, fold.position)
        return fold

    def _read(self) -> None:
        """Read a window of the journal, or one record if that is longer."""
        before, size = self._fold.position, _WINDOW_BYTES
        while self._has_more and self._fold.position == before:
            stop = self._window(size)
            self._take_in(stop)
            # A segment may have no record; then its end differs from the position of the last
            # record.
            self._seen = stop if stop == self._upto else self._fold.position
            size *= 2

    def _window(self, size: int) -> Position:
        """The position `size` bytes further, at most where the controller says that the journal
        ends."""
        at, upto = self._fold.position, self._upto
        while at.segment < upto.segment:
            whole = (self._layout.journal / segment_name(at.segment)).stat().st_size
            if whole - at.offset > size:
                return Position(at.segment, at.offset + size)
            size -= max(0, whole - at.offset)
            at = Position(at.segment + 1)
        return Position(at.segment, min(upto.offset, at.offset + size))

    def _take_in(self, stop: Position) -> None:
        machine = self._fold.machine
        for event, _, before in self._fold.run(self._layout.journal, stop):
            if isinstance(event, Recalled):
                for trial in machine.trials.values():
                    self._pending += self._state.begin_anew(trial)
                continue
            subject = subject_of(event)
            after = machine.trials.get(subject) if subject else None
            self._pending += self._state.read(event, before, after)
            for trial_id, was in machine.moved.items():
                now_is = machine.trials[trial_id]
                # Another trial that this event has ended has no event of its own.
                if trial_id != subject and now_is.status.is_final and not was.status.is_final:
                    self._pending += self._state.read(None, was, now_is)

    # -- the end ----------------------------------------------------------------------------------

    def _on_finished(self, outcome: BatchOutcome) -> None:
        self._state.acknowledge(outcome.held)
        if outcome.error:
            self._say(["trouble", outcome.error])
        self._end(is_complete=self._state.are_settled)

    def _end(self, *, is_complete: bool) -> None:
        """End. The controller lists what was not delivered: everything after the cursor."""
        self._keep()
        self.is_done = True
        self._say(["done", is_complete])

    def _load(self) -> DeliveryState:
        try:
            data = read_json(self._cursor)
            return DeliveryState(decode_accounts(data, self._job.experiment_id))
        except FileNotFoundError:
            return DeliveryState()
        except (OSError, ValueError) as error:
            self._say(
                ["trouble", f"{self._cursor.name} cannot be read ({error}): everything is "
                 "sent again"]
            )  # fmt: skip
            return DeliveryState()

    def _keep(self) -> None:
        """Store what was acknowledged. Without fsync: losing it only repeats some calls."""
        data = encode_state(self._job.experiment_id, self._state)
        with suppress(OSError):  # a full disk has the same effect
            replace_file(self._cursor, json.dumps(data).encode())
        self._is_kept, self._kept_at = True, self._watch.now()


def fold_for(accounts: Mapping[str, Account], job: TrackerJob) -> Fold:
    """A fold at the newest snapshot if the tracker has everything before it, because folding a
    journal of 100,000 rows takes 4 s; otherwise at the start of the experiment."""
    if accounts:
        with suppress(OSError, UnreadableRecord):
            taken = load_newest_snapshot(job.layout).snapshot
            if taken is not None and _has_all(accounts, taken, job.experiment_id):
                return Fold(taken.machine, taken.position, taken.begun_at)
    return Fold(Machine(), Position(job.begins))


def _has_all(accounts: Mapping[str, Account], taken: Snapshot, experiment_id: str) -> bool:
    machine, nothing = taken.machine, Account()
    return machine.spec.experiment_id == experiment_id and all(
        accounts.get(trial.trial_id, nothing).delivered >= reached(trial)
        for trial in machine.trials.values()
    )


_NICE = 10
ATTEMPT = "attempt"


class _Watch:
    now = staticmethod(time.monotonic)
    chance = staticmethod(random.random)


def main(channel: Channel) -> None:
    """Main function of a tracker process."""
    give_way(_NICE)
    # The user's settings may turn warnings into errors, also those of a tracker's library.
    warnings.simplefilter("ignore")
    opening = channel.receive()
    if opening is None:
        return
    job = TrackerJob(**opening[1])
    inbox: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, inbox), daemon=True).start()
    try:
        with children_end_here():
            tracker = _tracker(job)
        surroundings = Surroundings.of(
            job.layout,
            trainable_name=job.trainable,
            experiment_path=job.experiment_path,
            config_of=lambda trial: shown_config(trial.config),
            space=job.space,
        )
        calls = TrackerCalls(tracker, surroundings, job.experiment_id, inbox.put, job.tags)
    except Exception as error:  # the controller reports it
        channel.send(["unfit", named(error)])
        _leave(0)
    decides = threading.Thread(
        target=_serve, args=(channel, job, calls, inbox, tracker.delays), daemon=True
    )
    decides.start()
    calls.work()
    decides.join()


def _tracker(job: TrackerJob) -> Tracker:
    import cloudpickle

    tracker: Tracker = cloudpickle.loads(job.tracker)
    for name, value in cloudpickle.loads(job.secrets).items():
        setattr(tracker, name, value)
    tracker.setup(num_samples=job.samples, total_num_samples=job.total_samples)
    return tracker


def _listen(channel: Channel, inbox: queue.SimpleQueue[list[Any] | None]) -> None:
    while (message := channel.receive()) is not None:
        inbox.put(message)
    inbox.put(None)


def _serve(
    channel: Channel,
    job: TrackerJob,
    calls: TrackerCalls,
    inbox: queue.SimpleQueue[list[Any] | None],
    delays: RetryDelays,
) -> None:
    """Serve until the end, then end the process at once.

    The tracker may be in the middle of a call, and its library may do more at exit: all of it was
    delivered or given up.
    """
    try:
        loop = DeliveryLoop(job, calls, _Watch(), channel.send, delays=delays)
        has_answered = False
        while True:
            loop.act()
            if loop.is_done:
                break
            with suppress(queue.Empty):
                message = inbox.get(timeout=loop.wait_s)
                if message is None:  # the controller is gone: a restore delivers the rest
                    break
                loop.receive(message)
                if message[0] == "outcome" and not has_answered:
                    has_answered = True
                    channel.send(["answered"])
                    children_give_way()  # a tracker may start a service process, as W&B does
        _leave(0)
    except ConnectionError:  # the controller is gone
        _leave(0)
    except (
        BaseException
    ):  # a bug in holdfast: the exit code shows it, and the next process continues
        traceback.print_exc()
        _leave(1)


def _leave(status: int) -> None:
    """End this process and the processes of the tracker's library."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


class TrackerCalls:
    """Calls the hooks of one tracker, batch by batch, in the thread that runs `work`."""

    def __init__(
        self,
        tracker: Tracker,
        surroundings: Surroundings,
        experiment_id: str,
        answer: Callable[[list[Any]], None],
        tags: Mapping[str, str],
    ) -> None:
        self._tracker = tracker
        self._surroundings = surroundings
        self._experiment_id = experiment_id
        self._answer = answer
        self._tags = tags
        self._orders: queue.SimpleQueue[Sequence[TrackerCall] | None] = queue.SimpleQueue()
        self._views: dict[str, TrackedTrial] = {}
        self._open: set[str] = set()

    def tell(self, batch: Sequence[TrackerCall]) -> None:
        self._orders.put(batch)

    def finish(self) -> None:
        self._orders.put(None)

    def work(self) -> None:
        """Deliver batches until `finish`, or until the process ends."""
        while (batch := self._orders.get()) is not None:
            self._answer(["outcome", self._deliver(batch)])
        self._answer(["finished", self._end()])

    def _deliver(self, batch: Sequence[TrackerCall]) -> BatchOutcome:
        taken, failure = 0, None
        try:
            for call in batch:
                self._call(call)
                taken += 1
        except (Exception, SystemExit) as error:  # part of the outcome
            failure = error
        try:
            with children_end_here():
                if taken:
                    self._tracker.flush()
                held = self._tracker.holds()
        except (Exception, SystemExit) as error:  # likewise
            return self._failed(error, 0, frozenset(call.trial.trial_id for call in batch))
        if failure is not None:
            return self._failed(failure, taken, held)
        return BatchOutcome(taken=taken, held=held)

    def _failed(self, error: BaseException, taken: int, held: frozenset[str]) -> BatchOutcome:
        headline = " ".join(named(error).split())
        refused = isinstance(error, Exception) and self._tracker.is_refusal(error)
        return BatchOutcome(taken=taken, held=held, error=headline[:1000], is_refusal=refused)

    def _call(self, call: TrackerCall) -> None:
        trial = call.trial
        view = self._view(call)
        if trial.trial_id not in self._open:
            # This tracker process replaces another one, or the trial's start was refused.
            self._hook(START, call, view)
            self._open.add(trial.trial_id)
            if call.hook == START:
                return
        self._hook(call.hook, call, view)

    def _hook(self, hook: str, call: TrackerCall, view: TrackedTrial) -> None:
        given: dict[str, Any] = {}
        if hook == "on_trial_result":
            row = newest_row(call.trial)
            row.setdefault(ATTEMPT, call.trial.attempt)
            given["result"] = row
        iteration = call.trial.iteration
        with children_end_here():
            getattr(self._tracker, hook)(
                iteration=iteration, trials=list(self._views.values()), trial=view, **given
            )

    def _view(self, call: TrackerCall) -> TrackedTrial:
        trial = call.trial
        view = self._views.get(trial.trial_id)
        if view is None:
            view = TrackedTrial(trial, self._surroundings, self._experiment_id, self._tags)
            self._views[trial.trial_id] = view
        view.show(trial)
        view.told = Told(attempt=trial.attempt, row=call.mark.rows)
        return view

    def _end(self) -> BatchOutcome:
        try:
            with children_end_here():
                self._tracker.on_experiment_end(trials=list(self._views.values()))
                self._tracker.flush()
                return BatchOutcome(taken=0, held=self._tracker.holds())
        except (Exception, SystemExit) as error:  # part of the outcome
            return self._failed(error, 0, self._tracker.holds())
