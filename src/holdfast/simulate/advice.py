"""The user's search and stop function, called in the order of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from holdfast.experiment.control.replay import Change
from holdfast.experiment.control.search_thread import pausing_of
from holdfast.experiment.control.stopper_thread import StopFunction
from holdfast.experiment.records.rows import newest_row
from holdfast.experiment.worker.host import failure_of
from holdfast.scheduler.effects import AskStopper
from holdfast.scheduler.events import (
    EndOrdered,
    Event,
    SearchEnded,
    SearchWaits,
    StopperAnswered,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.trial.events import Reported
from holdfast.trial.stopper import Stopper
from holdfast.trial.trial import Trial


class Proposes(Protocol):
    """Makes trials: the Proposer of a real run, or a recording of one."""

    @property
    def searcher(self) -> Searcher | None: ...

    @property
    def nothing_to_wait_for(self) -> str: ...

    @property
    def ended_because(self) -> str: ...

    def open(self) -> None: ...

    def propose(self, index: int) -> Suggested | SearchEnded | None: ...

    def with_users_config(
        self,
        question: Mapping[str, Any],
        ask: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> Mapping[str, Any]: ...


class Search:
    """Does the work of the search thread: passes on every event, then asks again."""

    def __init__(
        self,
        proposer: Proposes,
        machine: Machine,
        *,
        post: Callable[[Event], None],
        warn: Callable[[str], None],
    ) -> None:
        self._proposer = proposer
        self._machine = machine
        self._post = post
        self._warn = warn
        self._searcher = proposer.searcher
        self._postponed: int | None = None
        if self._searcher is not None:
            proposer.open()

    @property
    def learns(self) -> bool:
        """Whether the search wants to know about events."""
        return self._searcher is not None

    def ask(self, index: int) -> None:
        """Post trial number `index`, or the end of the search. A search that returned None is
        asked again after the next event. Raises the exceptions of the user's code."""
        answer = self._proposer.propose(index)
        machine, placement = self._machine, self._machine.placement
        if answer is not None or self._searcher is None:
            if isinstance(answer, SearchEnded) and self._proposer.ended_because:
                self._warn(self._proposer.ended_because)
            self._post(answer or SearchEnded())
        elif placement.holds or placement.queue or placement.delayed or machine.paused:
            self._postponed = index
            if machine.paused and not machine.search_waits:
                self._post(SearchWaits())
        else:
            self._post(EndOrdered(reason="abort", message=self._proposer.nothing_to_wait_for))

    def saw(self, changes: Iterable[Change]) -> None:
        """Pass on the effects of an event on trials, then ask again."""
        news = [change for change in changes if self._heard(*change)]
        if news and self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)

    def _heard(self, event: Event | None, before: Trial | None, after: Trial | None) -> bool:
        """Pass on a trial's report or end. Returns whether there was one."""
        if self._searcher is None or before is None or after is None or before is after:
            return False
        if isinstance(event, Reported):
            self._searcher.on_trial_result(after.trial_id, newest_row(after))
        if pausing := pausing_of(before, after):
            getattr(self._searcher, pausing)(after.trial_id)
        if after.status.is_final and not before.status.is_final:
            row = None if after.row is None else newest_row(after)
            failed = after.error is not None
            self._searcher.on_trial_complete(after.trial_id, result=row, error=failed)
        return True


def ask_stopper(stopper: StopFunction, effect: AskStopper, trial: Trial) -> StopperAnswered:
    """The answer of the user's stop function to the trial's newest report."""
    stop = stop_all = False
    failure = None
    try:
        stop = bool(stopper(trial.trial_id, newest_row(trial)))
        if isinstance(stopper, Stopper):
            stop_all = bool(stopper.stop_all())
    except Exception as error:  # reported as the failure of this trial
        failure = failure_of(error, "stopper")
    return StopperAnswered(
        trial_id=effect.trial_id,
        attempt=effect.attempt,
        iteration=effect.iteration,
        stop=stop,
        stop_all=stop_all,
        failure=failure,
    )
