"""The search in its own thread: asked for trials, and told what became of them, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.experiment.advisors import Advisor
from holdfast.experiment.proposer import Proposer
from holdfast.scheduler.events import EndOrdered, Event, Resumed, SearchEnded, SearchWaits
from holdfast.trial.lifecycle import Reported
from holdfast.trial.trial import Status, Trial


class SearchThread:
    """`row_of` gives the full row of a trial's newest report; `is_under_way` says whether there is
    a trial whose report could make a search that said «not now» answer otherwise, `are_paused`
    whether some of them are paused. `fail` is told what the user's code raises."""

    def __init__(
        self,
        proposer: Proposer,
        *,
        post: Callable[[Event], None],
        fail: Callable[[BaseException], None],
        row_of: Callable[[Trial], dict[str, Any]],
        is_under_way: Callable[[], bool],
        are_paused: Callable[[], bool],
    ) -> None:
        self._proposer = proposer
        self._post = post
        self._fail = fail
        self._row_of = row_of
        self._is_under_way = is_under_way
        self._are_paused = are_paused
        self._advisor = Advisor("search algorithm")
        self._asking: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Future[Any]] = set()
        self._postponed: int | None = None
        self._news = 0

    def begin(self, trials: Iterable[Trial], resumed: Resumed | None) -> None:
        """Get ready; on a restore `trials` are those of before, and the ends that stand are told
        again."""
        if self._proposer.searcher is None:
            return
        self._tell(self._proposer.open)
        for trial in trials:
            if resumed is not None and _stays_ended(trial, resumed):
                self._tell_end(trial)

    def ask(self, index: int) -> None:
        """Post trial number `index`, or that there is no other."""
        if self._proposer.runs_user_code:
            task = asyncio.ensure_future(self._ask(index))
            self._asking.add(task)
            task.add_done_callback(self._asked)
        else:
            self._post(self._proposer.propose(index) or SearchEnded())

    def saw(self, event: Event | None, before: Trial | None, after: Trial | None) -> None:
        """Tell what has happened to a trial: its report, its end."""
        searcher = self._proposer.searcher
        if searcher is None or before is None or after is None or before is after:
            return
        if isinstance(event, Reported):
            row = self._row_of(after)
            self._tell(partial(searcher.on_trial_result, after.trial_id, row))
        if after.status.is_final and not before.status.is_final:
            self._tell_end(after)
        self._news += 1
        if self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)

    async def finish(self, deadline_s: float) -> str | None:
        """Let everything be told; returns what to tell the user where that takes too long."""
        told = None
        if self._telling:
            _, left = await asyncio.wait(self._telling, timeout=deadline_s)
            if left:
                told = (
                    f"the search algorithm did not take in {len(left)} events in {deadline_s:g} s"
                )
        self._advisor.close()
        return told

    def close(self) -> None:
        """Ask nothing more."""
        for task in self._asking:
            task.cancel()

    async def _ask(self, index: int) -> None:
        answer, seen = None, -1
        # What has happened while it was thinking may have changed its mind.
        while answer is None and self._news != seen:
            seen = self._news
            answer = await self._advisor.ask(lambda: self._proposer.propose(index))
        if answer is not None:
            self._post(answer)
        elif self._is_under_way():
            self._postponed = index
            if self._are_paused():
                self._post(SearchWaits())
        else:
            self._post(EndOrdered(reason="abort", message=self._proposer.nothing_to_wait_for))

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _tell_end(self, trial: Trial) -> None:
        searcher = self._proposer.searcher
        assert searcher is not None
        row = None if trial.row is None else self._row_of(trial)
        failed = trial.error is not None
        self._tell(partial(searcher.on_trial_complete, trial.trial_id, row, failed))

    def _tell(self, statement: Callable[[], Any]) -> None:
        telling = self._advisor.tell(statement)
        self._telling.add(telling)
        telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Future[Any]) -> None:
        self._telling.discard(telling)
        error = None if telling.cancelled() else telling.exception()
        if error is not None:
            self._fail(error)


def _stays_ended(trial: Trial, resumed: Resumed) -> bool:
    match trial.status:
        case Status.TERMINATED:
            return resumed.finished == "skip"
        case Status.ERROR:
            return resumed.errored == "skip"
        case _:
            return False
