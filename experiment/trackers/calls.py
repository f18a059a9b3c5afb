"""Calls a tracker in the main thread of its process, and reports the outcome."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.experiment.callbacks.trial_view import Surroundings
from holdfast.experiment.records.rows import newest_row
from holdfast.experiment.trackers.delivery import START, TrackerCall
from holdfast.experiment.trackers.delivery_loop import BatchOutcome
from holdfast.experiment.trackers.tracker import Told, TrackedTrial, Tracker
from holdfast.forked import children_end_here
from holdfast.runtime.safe_text import named

ATTEMPT = "attempt"


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
