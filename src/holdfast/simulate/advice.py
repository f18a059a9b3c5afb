"""The user's search, called in the order of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.experiment.control.proposer import Proposer
from holdfast.experiment.control.replay import Change
from holdfast.experiment.control.search_thread import calls_for
from holdfast.scheduler.events import EndOrdered, Event, SearchEnded, SearchWaits
from holdfast.scheduler.machine import Machine


class Search:
    """Does the work of the search thread: passes on every event, then asks again."""

    def __init__(
        self,
        proposer: Proposer,
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
        is_news = False
        for event, before, after in changes:
            for call in calls_for(self._proposer, event, before, after):
                call()
            is_news |= before is not None and before is not after
        if is_news and self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)
