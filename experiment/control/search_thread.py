"""The thread of the search algorithm: asks it for trials, and passes it their results in order."""

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

# How many calls a replay holds back at most until an earlier question is answered.
_MOST_UNHEARD = 1000


class SearchThread:
    """Calls the search algorithm in its own thread.

    `row_of` returns the full row of a trial's newest report. `may_report` says whether a trial may
    still report: then a search that suggested nothing is asked again later. `announces_wait` says
    whether the machine must know that the search waits, because it may have to resume paused
    trials. `fail` is called with an exception of user code, `warn` with the reason why a search
    ended early.
    """

    def __init__(
        self,
        proposer: Proposer,
        *,
        tasks: TaskScope,
        post: Callable[[Event], None],
        fail: Callable[[BaseException], None],
        warn: Callable[[str], None],
        row_of: Callable[[Trial], dict[str, Any]],
        may_report: Callable[[], bool],
        announces_wait: Callable[[], bool],
    ) -> None:
        self._proposer = proposer
        self._post = post
        self._fail = fail
        self._warn = warn
        self._row_of = row_of
        self._may_report = may_report
        self._announces_wait = announces_wait
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
        """Open the search. On a restore, replay `history` to it; `trials` are those that exist."""
        if self._proposer.searcher is None:
            return
        self._tell(self._proposer.open)
        if resumed is not None:
            known = list(trials)
            standing = {t.trial_id: t.attempt for t in known if _stays_ended(t, resumed)}
            left = [trial for trial in known if _is_left(trial, resumed)]
            self._watch(self._user_thread.tell_each(self._replayed(history, standing, left)))

    def _replayed(
        self, history: Iterable[Change], standing: Mapping[str, int], left: Iterable[Trial]
    ) -> Iterator[None]:
        """Replay `history` step by step, in the original order of questions and calls.

        A trial may have ended several times: the search gets only the end of the attempt in
        `standing`. Trials in `left` will never run again, so they end as failed.
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
        """Ask for trial number `index` and post the answer: a trial, or the end of the search."""
        if self._proposer.runs_user_code:
            self._asking.start(self._ask(index))
        else:
            self._answer(self._proposer.propose(index) or SearchEnded())

    def saw(self, event: Event | None, before: Trial | None, after: Trial | None) -> None:
        """Pass a report or the end of a trial to the search."""
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
        """Wait until the search has all results. Returns a warning if it takes too long."""
        warning = None
        if self._telling:
            _, left = await asyncio.wait(self._telling, timeout=deadline_s)
            if left:
                warning = (
                    f"the search algorithm did not take in {len(left)} events in {deadline_s:g} s"
                )
        self._user_thread.close()
        return warning

    def close(self) -> None:
        """Ask nothing more."""
        self._closed = True
        self._asking.cancel()

    async def _ask(self, index: int) -> None:
        answer, seen, told_of = None, -1, 0
        # Results that arrived during the call may change its answer.
        while answer is None and self._news != seen:
            seen, told_of = self._news, self._told_of
            answer = await self._user_thread.ask(lambda: self._proposer.propose(index))
        if isinstance(answer, Suggested):
            unheard = min(self._told_of - told_of, _MOST_UNHEARD)
            self._answer(replace(answer, unheard=unheard))
        elif answer is not None:
            self._answer(answer)
        elif self._may_report():
            self._postponed = index
            if self._announces_wait():
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
        """The calls that a change leads to; with `standing`, only the ends that it lists."""
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
    """Replaces a call that a replay leaves out, so that the others keep their numbers."""


def pausing_of(before: Trial, after: Trial) -> str:
    """The searcher's method for a trial that was paused or resumed; "" for other changes."""
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
    """Whether the trial was unfinished and will not be resumed."""
    under_way = bool(trial.attempt) and not trial.status.is_final
    return under_way and trial.status is not Status.STOPPING and resumed.unfinished == "skip"
