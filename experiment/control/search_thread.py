"""The search algorithm in its own thread: it suggests trials and hears how they did, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.experiment.control.proposer import Proposer
from holdfast.experiment.control.replay import Change
from holdfast.experiment.control.user_threads import UserThread
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.events import (
    EndOrdered,
    Event,
    Resumed,
    SearchEnded,
    SearchWaits,
    Suggested,
)
from holdfast.trial.events import Reported
from holdfast.trial.trial import Status, Trial

# The most calls that are held in memory until a question that came before them is answered.
_MOST_UNHEARD = 1000


class SearchThread:
    """`row_of` gives the full row of a trial's newest report. `is_under_way` says whether a trial
    may still report, so that it pays to ask a search again that suggested nothing; `are_paused`
    whether trials are paused. `fail` hears what the user's code raises, `warn` why a search has
    ended early."""

    def __init__(
        self,
        proposer: Proposer,
        *,
        tasks: TaskScope,
        post: Callable[[Event], None],
        fail: Callable[[BaseException], None],
        warn: Callable[[str], None],
        row_of: Callable[[Trial], dict[str, Any]],
        is_under_way: Callable[[], bool],
        are_paused: Callable[[], bool],
    ) -> None:
        self._proposer = proposer
        self._post = post
        self._fail = fail
        self._warn = warn
        self._row_of = row_of
        self._is_under_way = is_under_way
        self._are_paused = are_paused
        self._user_thread = UserThread("search algorithm")
        self._asking = tasks.scope(fail=fail)
        self._telling: set[asyncio.Future[Any]] = set()
        self._postponed: int | None = None
        self._news = 0
        self._told_of = 0
        self._closed = False

    def begin(
        self, trials: Iterable[Trial], resumed: Resumed | None, history: Iterable[Change]
    ) -> None:
        """Get ready. On a restore `trials` are the earlier ones, and the search hears `history`
        again."""
        if self._proposer.searcher is None:
            return
        self._tell(self._proposer.open)
        if resumed is not None:
            known = list(trials)
            standing = {t.trial_id: t.attempt for t in known if _stays_ended(t, resumed)}
            left = [trial for trial in known if _is_left(trial, resumed)]
            self._watch(self._user_thread.tell_each(self._retold(history, standing, left)))

    def _retold(
        self, history: Iterable[Change], standing: Mapping[str, int], left: Iterable[Trial]
    ) -> Iterator[None]:
        """Replay `history` step by step. Of the ends of a trial the search hears only that of the
        attempt in `standing`. Trials in `left` will never run again.

        Calls that came after a question whose answer came later keep that order.
        """
        held: deque[Callable[[], Any]] = deque()
        for event, before, after in history:
            if self._closed:
                return
            held.extend(self._news_of(event, before, after, standing))
            if isinstance(event, Suggested):
                _tell_all_but(held, event.unheard)
                self._proposer.recall(event)
            _tell_all_but(held, _MOST_UNHEARD)
            yield
        _tell_all_but(held, 0)
        for trial in left:
            if trial.trial_id not in self._proposer.skipped:
                self._end_of(trial, failed=True)()

    def ask(self, index: int) -> None:
        """Post trial number `index`, or that the search has ended."""
        if self._proposer.runs_user_code:
            self._asking.start(self._ask(index))
        else:
            self._answer(self._proposer.propose(index) or SearchEnded())

    def saw(self, event: Event | None, before: Trial | None, after: Trial | None) -> None:
        """Tell the search what happened to a trial: its report, its end."""
        if self._proposer.searcher is None or before is None or before is after:
            return
        for statement in self._news_of(event, before, after):
            self._told_of += 1
            self._tell(statement)
        self._news += 1
        if self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)

    async def finish(self, deadline_s: float) -> str | None:
        """Wait until the search has heard everything. Returns a warning if it takes too long."""
        told = None
        if self._telling:
            _, left = await asyncio.wait(self._telling, timeout=deadline_s)
            if left:
                told = (
                    f"the search algorithm did not take in {len(left)} events in {deadline_s:g} s"
                )
        self._user_thread.close()
        return told

    def close(self) -> None:
        """Ask nothing more."""
        self._closed = True
        self._asking.cancel()

    async def _ask(self, index: int) -> None:
        answer, seen, told_of = None, -1, 0
        # What happened while it was thinking may change its answer.
        while answer is None and self._news != seen:
            seen, told_of = self._news, self._told_of
            answer = await self._user_thread.ask(lambda: self._proposer.propose(index))
        if isinstance(answer, Suggested):
            unheard = min(self._told_of - told_of, _MOST_UNHEARD)
            self._answer(replace(answer, unheard=unheard))
        elif answer is not None:
            self._answer(answer)
        elif self._is_under_way():
            self._postponed = index
            if self._are_paused():
                self._post(SearchWaits())
        else:
            self._post(EndOrdered(reason="abort", message=self._proposer.nothing_to_wait_for))

    def _answer(self, answer: Suggested | SearchEnded) -> None:
        if isinstance(answer, SearchEnded) and self._proposer.ended_because:
            self._warn(self._proposer.ended_because)
        self._post(answer)

    def _news_of(
        self,
        event: Event | None,
        before: Trial | None,
        after: Trial | None,
        standing: Mapping[str, int] | None = None,
    ) -> Iterator[Callable[[], Any]]:
        """The calls that a change leads to; given `standing`, only for ends that are in it."""
        searcher = self._proposer.searcher
        if searcher is None or before is None or after is None or before is after:
            return
        if after.trial_id in self._proposer.skipped:
            return
        if isinstance(event, Reported):
            yield partial(searcher.on_trial_result, after.trial_id, self._row_of(after))
        if pausing := pausing_of(before, after):
            yield partial(getattr(searcher, pausing), after.trial_id)
        if after.status.is_final and not before.status.is_final:
            stands = standing is None or standing.get(after.trial_id) == after.attempt
            yield self._end_of(after, failed=after.error is not None) if stands else _nothing

    def _end_of(self, trial: Trial, *, failed: bool) -> Callable[[], Any]:
        searcher = self._proposer.searcher
        assert searcher is not None
        row = None if trial.row is None else self._row_of(trial)
        # By name: Ray documents (trial_id, result=None, **kwargs) for searchers of the user's.
        return partial(searcher.on_trial_complete, trial.trial_id, result=row, error=failed)

    def _tell(self, statement: Callable[[], Any]) -> None:
        self._watch(self._user_thread.tell(statement))

    def _watch(self, telling: asyncio.Future[Any]) -> None:
        self._telling.add(telling)
        telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Future[Any]) -> None:
        self._telling.discard(telling)
        error = None if telling.cancelled() else telling.exception()
        if error is not None:
            self._fail(error)


def _tell_all_but(held: deque[Callable[[], Any]], count: int) -> None:
    while len(held) > count:
        held.popleft()()


def _nothing() -> None:
    """In place of a call that is left out in a replay, so that the others keep their numbers."""


def pausing_of(before: Trial, after: Trial) -> str:
    """The searcher's method for a trial that the scheduler has paused or resumed, or ""."""
    was, is_paused = (trial.status is Status.PAUSED for trial in (before, after))
    if was == is_paused or after.status.is_final:
        return ""
    return "on_pause" if is_paused else "on_unpause"


def _stays_ended(trial: Trial, resumed: Resumed) -> bool:
    match trial.status:
        case Status.TERMINATED:
            return resumed.finished == "skip"
        case Status.ERROR:
            return resumed.errored == "skip"
        case _:
            return False


def _is_left(trial: Trial, resumed: Resumed) -> bool:
    """Whether it was under way and is not resumed."""
    under_way = bool(trial.attempt) and not trial.status.is_final
    return under_way and trial.status is not Status.STOPPING and resumed.unfinished == "skip"
