"""The main function of a tracker process: the tracker in the main thread, the loop in another."""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.experiment.callbacks.trial_view import Surroundings
from holdfast.experiment.records.rows import newest_row, shown_config
from holdfast.experiment.trackers.delivery import START, RetryDelays, TrackerCall
from holdfast.experiment.trackers.delivery_loop import BatchOutcome, DeliveryLoop
from holdfast.experiment.trackers.job import TrackerJob
from holdfast.experiment.trackers.tracker import Told, TrackedTrial, Tracker
from holdfast.forked import children_end_here
from holdfast.runtime.process_control import children_give_way, give_way
from holdfast.runtime.transport import Channel
from holdfast.text.errors import named

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
                loop.hear(message)
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
