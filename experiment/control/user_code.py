"""Asks the user's searcher, stopper and scheduler in their threads, and posts the answers. The
search gets all results in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.proposer import Proposer
from holdfast.experiment.control.user_threads import (
    Change,
    SchedulerCalls,
    StopperThread,
    UserThread,
)
from holdfast.experiment.records.rows import newest_row
from holdfast.runtime.tasks import RunTasks, TaskScope
from holdfast.scheduler.effects import AskScheduler, AskStopper, Suggest
from holdfast.scheduler.events import (
    ConfigRefused,
    EndOrdered,
    Event,
    Resumed,
    SamplesAdded,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    Suggested,
    SuggestedAhead,
)
from holdfast.scheduler.resuming import kept_ahead
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.text.errors import named
from holdfast.trial.events import ConstraintViolated, Reported
from holdfast.trial.trial import Status, StopReason, Trial, TrialSpec

# How many calls a replay postpones at most until an earlier question is answered.
_MOST_UNHEARD = 1000
# The time of a faster answer is not recorded.
_NOTED_S = 0.01


class SearchThread:
    """Calls the search algorithm in its own thread.

    `may_report` says whether a trial may still report: then a search that suggested nothing is
    asked again later. `is_awaited` says whether a worker is free for the trial that it is asked
    for. `announces_wait` says whether the machine must know that the search waits.
    `fail` is called with an exception of user code, `warn` with the reason why a search ended
    early, `inform` with what a restore has replayed.
    """

    def __init__(
        self,
        proposer: Proposer,
        *,
        tasks: TaskScope,
        post: Callable[[Event], None],
        fail: Callable[[BaseException], None],
        warn: Callable[[str], None],
        inform: Callable[[str], None],
        may_report: Callable[[], bool],
        announces_wait: Callable[[], bool],
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        self._proposer = proposer
        self._post = post
        self._fail = fail
        self._warn = warn
        self._inform = inform
        self._may_report = may_report
        self._is_awaited = is_awaited
        self._announces_wait = announces_wait
        self._user_thread = UserThread("search algorithm")
        self._asking = tasks.scope(fail=fail)
        self._running_calls: set[asyncio.Future[Any]] = set()
        self._is_thinking = False
        self._postponed: int | None = None
        # The number of extensions when it said, ahead of time, that there are no more trials.
        self._ends_at: int | None = None
        self._changes_seen = 0
        self._calls_made = 0
        self._extensions = 0
        self._closed = self._is_finished = False
        # The trials that are known to violate a constraint.
        self._infeasible: set[str] = set()

    def begin(
        self,
        trials: Iterable[Trial],
        resumed: Resumed | None,
        history: Iterable[Change],
        suggested: Container[str] | None = None,
    ) -> None:
        """Open the search. On a restore, replay `history` to it; `trials` are those that exist,
        and `suggested` the ids of these and of those that were suggested ahead; None for all."""
        if self._proposer.searcher is None:
            return
        self._tell(self._proposer.open)
        if resumed is not None:
            known = list(trials)
            self._infeasible = {trial.trial_id for trial in known if trial.is_infeasible}
            final_attempts = {t.trial_id: t.attempt for t in known if _stays_ended(t, resumed)}
            abandoned = [trial for trial in known if _is_abandoned(trial, resumed)]
            self._watch(
                self._user_thread.tell_each(
                    self._replay(history, final_attempts, abandoned, suggested)
                )
            )
            self._look_for_violations()

    def _replay(
        self,
        history: Iterable[Change],
        final_attempts: Mapping[str, int],
        abandoned: Iterable[Trial],
        suggested: Container[str] | None,
    ) -> Iterator[None]:
        """Replay `history` step by step, in the original order of questions and calls.

        What was suggested ahead is replayed where the search answered. A trial may have ended
        several times: the search gets only the end of the attempt in `final_attempts`. Trials in
        `abandoned` will never run again, so they end as failed.
        """
        pending_calls: deque[Callable[[], Any]] = deque()
        given = 0
        ahead: set[str] = set()
        for event, before, after in history:
            if self._closed:
                return
            pending_calls.extend(calls_for(self._proposer, event, before, after, final_attempts))
            answered = event.suggestion if isinstance(event, SuggestedAhead) else event
            if isinstance(answered, Suggested):
                trial_id = answered.spec.trial_id
                stands = suggested is None or trial_id in suggested
                if stands and trial_id not in ahead:
                    _call_all_but(pending_calls, answered.unheard)
                    self._proposer.replay_suggestion(answered)
                    given += trial_id not in self._proposer.skipped
                if answered is not event:
                    ahead.add(trial_id)
            _call_all_but(pending_calls, _MOST_UNHEARD)
            yield
        _call_all_but(pending_calls, 0)
        for trial in abandoned:
            if trial.trial_id not in self._proposer.skipped:
                _completion_of(self._proposer, trial, failed=True)()
        if given:
            search = type(self._proposer.searcher).__name__
            self._inform(f"{search} was given the history of {given} trial{'s' * (given > 1)}")

    def ask(self, index: int, known: Suggested | None = None) -> None:
        """Ask for trial number `index` and post the answer: a trial, or the end of the search.

        `known` is the answer if it was suggested ahead. A question that the search still thinks
        about is not asked twice.
        """
        if known is not None:
            self._post(known)
        elif self._ends_at == self._extensions:
            if self._is_awaited():
                self._answer(SearchEnded())
        elif self._proposer.runs_user_code:
            self._postponed = None
            if not self._is_thinking:
                self._is_thinking = True
                self._asking.start(self._ask(index))
        else:
            self._answer(self._proposer.propose(index) or SearchEnded())

    def add(self, index: int, config: Mapping[str, Any]) -> None:
        """Make a trial of a config that a person has added, and post it."""
        self._make(partial(self._proposer.propose_added, index, config))

    def repeat(self, index: int, spec: TrialSpec) -> None:
        """Make a trial that runs these settings again, and post it."""
        self._make(partial(self._proposer.propose_again, index, spec))

    def _make(self, make: Callable[[], Suggested | ConfigRefused]) -> None:
        if self._proposer.runs_user_code:
            self._asking.start(self._add(make))
        else:
            self._post(make())

    def extend(self, num_samples: int) -> None:
        """A person has added samples."""
        self._extensions += 1
        self._proposer.extend(num_samples)

    def observe(self, event: Event | None, before: Trial | None, after: Trial | None) -> None:
        """Pass a report or the end of a trial to the search."""
        if self._is_finished or self._proposer.searcher is None:
            return
        if before is None or before is after:
            return
        for call in calls_for(self._proposer, event, before, after):
            self._calls_made += 1
            self._tell(call)
        if after is not None and after.status.is_final and not before.status.is_final:
            self._look_for_violations()
        self._changes_seen += 1
        if self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)

    async def finish(self, deadline_s: float) -> str | None:
        """Wait until the search has all results, and end its thread. Returns a warning if it takes
        too long."""
        left: set[asyncio.Future[Any]] = set()
        try:
            if self._running_calls:
                _, left = await asyncio.wait(self._running_calls, timeout=deadline_s)
        finally:
            self._is_finished = True
            self._user_thread.close()
        if not left:
            return None
        return f"the search algorithm did not take in {len(left)} events in {deadline_s:g} s"

    def close(self) -> None:
        """Ask nothing more."""
        self._closed = True
        self._asking.cancel()

    async def _ask(self, index: int) -> None:
        try:
            answer = await self._thought(index)
        finally:
            self._is_thinking = False
        if not self._proposer.is_open:
            return
        is_awaited = self._is_awaited()
        if isinstance(answer, Suggested):
            self._answer(answer if is_awaited else SuggestedAhead(suggestion=answer))
        elif answer is not None and is_awaited:
            self._answer(answer)
        elif answer is not None:
            self._ends_at = self._extensions
        elif not is_awaited:
            self._postponed = index
        elif self._may_report():
            self._postponed = index
            if self._announces_wait():
                self._post(SearchWaits())
        else:
            self._post(EndOrdered(reason="abort", message=self._proposer.nothing_to_wait_for))

    async def _thought(self, index: int) -> Suggested | SearchEnded | None:
        """The answer of the search."""
        answer: Suggested | SearchEnded | None = None
        seen, extended, calls_made, took_s = -1, -1, 0, 0.0
        # Results that arrived during the call may change its answer, and more samples its end.
        while (answer is None and self._changes_seen != seen) or (
            isinstance(answer, SearchEnded) and self._extensions != extended
        ):
            seen, extended = self._changes_seen, self._extensions
            calls_made = self._calls_made
            answer, took_s = await self._user_thread.ask(lambda: self._timed(index))
        if not isinstance(answer, Suggested):
            return answer
        is_last = answer.is_last and self._extensions == extended
        unheard = min(self._calls_made - calls_made, _MOST_UNHEARD)
        answer = replace(answer, is_last=is_last, unheard=unheard)
        if took_s < _NOTED_S:
            return answer
        return replace(answer, took_s=round(took_s, 3), look_ahead=self._proposer.look_ahead)

    def _timed(self, index: int) -> tuple[Suggested | SearchEnded | None, float]:
        began_s = time.monotonic()
        return self._proposer.propose(index), time.monotonic() - began_s

    async def _add(self, make: Callable[[], Suggested | ConfigRefused]) -> None:
        calls_made = self._calls_made
        answer = await self._user_thread.ask(make)
        if isinstance(answer, Suggested):
            answer = replace(answer, unheard=min(self._calls_made - calls_made, _MOST_UNHEARD))
        self._post(answer)
        if self._proposer.unlearned:
            self._warn(self._proposer.unlearned)

    def _answer(self, answer: Suggested | SuggestedAhead | SearchEnded) -> None:
        if isinstance(answer, SearchEnded) and self._proposer.ended_because:
            self._warn(self._proposer.ended_because)
        self._post(answer)

    def _tell(self, call: Callable[[], Any]) -> None:
        self._watch(self._user_thread.tell(call))

    def _look_for_violations(self) -> None:
        """Ask which trials violate a constraint, once the search has seen the results so far."""
        searcher = self._proposer.searcher
        if searcher is None or type(searcher).infeasible is Searcher.infeasible:
            return
        call = self._user_thread.tell(lambda: {*searcher.infeasible})
        self._watch(call)
        call.add_done_callback(self._on_violations)

    def _on_violations(self, call: asyncio.Future[Any]) -> None:
        if self._is_finished or call.cancelled() or call.exception() is not None:
            return
        for trial_id in sorted(call.result() - self._infeasible):
            self._infeasible.add(trial_id)
            self._post(ConstraintViolated(trial_id=trial_id))

    def _watch(self, call: asyncio.Future[Any]) -> None:
        self._running_calls.add(call)
        call.add_done_callback(self._on_called)

    def _on_called(self, call: asyncio.Future[Any]) -> None:
        self._running_calls.discard(call)
        error = None if call.cancelled() else call.exception()
        if error is not None:
            self._fail(error)


def calls_for(
    proposer: Proposer,
    event: Event | None,
    before: Trial | None,
    after: Trial | None,
    final_attempts: Mapping[str, int] | None = None,
) -> Iterator[Callable[[], Any]]:
    """The calls of the searcher that a change leads to; with `final_attempts`, only the ends that
    it lists."""
    searcher = proposer.searcher
    if searcher is None or before is None or after is None or before is after:
        return
    if after.trial_id in proposer.skipped:
        return
    if isinstance(event, Reported):
        yield partial(searcher.on_trial_result, after.trial_id, newest_row(after))
    if pausing := pausing_of(before, after):
        yield partial(getattr(searcher, pausing), after.trial_id)
    if after.status.is_final and not before.status.is_final:
        stands = final_attempts is None or final_attempts.get(after.trial_id) == after.attempt
        is_failed = after.error is not None
        yield _completion_of(proposer, after, failed=is_failed) if stands else _no_call


def _completion_of(proposer: Proposer, trial: Trial, *, failed: bool) -> Callable[[], Any]:
    assert proposer.searcher is not None
    # A last report may have only a test score: the goal is that of an earlier one.
    row = None if trial.row is None else {**newest_row(trial), **(trial.earlier or {})}
    is_pruned = trial.stop is not None and trial.stop.reason is StopReason.PRUNED and not failed
    return partial(_complete, proposer.searcher, trial.trial_id, row, failed, is_pruned)


def _complete(
    searcher: Searcher, trial_id: str, row: dict[str, Any] | None, failed: bool, is_pruned: bool
) -> None:
    """One call for both, so that those that a journal counts keep their numbers."""
    if is_pruned:
        searcher.on_trial_pruned(trial_id)
    # By name: Ray documents (trial_id, result=None, **kwargs) for searchers of the user's.
    searcher.on_trial_complete(trial_id, result=row, error=failed)


def _call_all_but(pending_calls: deque[Callable[[], Any]], count: int) -> None:
    """Make the oldest calls, so that `count` remain."""
    while len(pending_calls) > count:
        pending_calls.popleft()()


def _no_call() -> None:
    """Replaces a call that a replay leaves out, so that the others keep their numbers."""


def pausing_of(before: Trial, after: Trial) -> str:
    """The searcher's method for a trial that was paused or resumed; "" for other changes."""
    was, is_paused = (trial.status is Status.PAUSED for trial in (before, after))
    if was == is_paused or after.status.is_final:
        return ""
    return "on_pause" if is_paused else "on_unpause"


def _stays_ended(trial: Trial, resumed: Resumed) -> bool:
    treated = {Status.TERMINATED: resumed.finished, Status.ERROR: resumed.errored}
    return treated.get(trial.status) == "skip"


def _is_abandoned(trial: Trial, resumed: Resumed) -> bool:
    """True if the trial was unfinished and will not be resumed."""
    under_way = bool(trial.attempt) and not trial.status.is_final
    return under_way and trial.status is not Status.STOPPING and resumed.unfinished == "skip"


class UserCode:
    """What the controller asks of the user's code.

    `tasks` ask it, and `post` gets its answers. An error ends the run.
    """

    def __init__(
        self,
        plan: RunPlan,
        *,
        run_tasks: RunTasks,
        tasks: TaskScope,
        post: Callable[[Event], None],
        warn: Callable[[str], None],
        inform: Callable[[str], None],
    ) -> None:
        self._plan, self._machine = plan, plan.machine
        self._run_tasks, self._tasks = run_tasks, tasks
        self._post, self._warn, self._inform = post, warn, inform
        self._search = SearchThread(
            plan.proposer,
            tasks=tasks,
            post=post,
            fail=self._search_failed,
            warn=warn,
            inform=inform,
            may_report=self._may_report,
            is_awaited=lambda: plan.machine.asking,
            announces_wait=self._announces_wait,
        )
        self.stopping = StopperThread(plan.stopper)
        self._scheduler = UserThread("scheduler")
        self._calls = plan.scheduler_calls
        self._has_searcher = plan.proposer.searcher is not None

    def begin(self, resumed: Resumed | None, history: Callable[[], Iterable[Change]]) -> None:
        """Open the search. On a restore, replay the history to it and to the scheduler."""
        ahead = [] if resumed is None else kept_ahead(self._machine, resumed)
        known = {one.spec.trial_id for one in ahead} | self._machine.trials.keys()
        self._search.begin(self._machine.trials.values(), resumed, history(), known)
        if self._calls is not None and resumed is not None:
            self._tasks.start(self._replay(self._calls, history()))

    def observe(self, change: Change) -> None:
        """Show the search and the scheduler what has happened."""
        if isinstance(change[0], SamplesAdded):
            self._search.extend(self._machine.spec.num_samples)
        if self._has_searcher:
            self._search.observe(*change)
        if self._calls is not None:
            for trial in self._shown_by(change):
                self._calls.note(trial)

    def _shown_by(self, change: Change) -> Iterable[Trial]:
        """The trials whose state a change may have changed, for the scheduler."""
        event, _, after = change
        if isinstance(event, Suggested):
            return [Trial(spec=event.spec)]
        if isinstance(event, Resumed):
            return self._machine.trials.values()
        return [] if after is None else [after]

    def suggest(self, effect: Suggest) -> None:
        """Ask the search for a trial, or make one of a config that a person has added, or of one
        that runs again."""
        if effect.again is not None:
            self._search.repeat(effect.index, effect.again)
        elif effect.config is None:
            self._search.ask(effect.index, effect.known)
        else:
            self._search.add(effect.index, effect.config)

    def checked_config(self, config: Any) -> tuple[dict[str, Any], list[str]]:
        """See `Proposer.checked_config`."""
        return self._plan.proposer.checked_config(config)

    def total_with(self, count: int) -> int | None:
        """How many trials the search makes with so many more samples; None without a limit."""
        return self._plan.proposer.total_of(self._machine.spec.num_samples + count)

    @property
    def own_limit(self) -> int | None:
        """How many trials the search algorithm itself lets run at once; None if it has no
        limit."""
        limit: int | None = getattr(self._plan.proposer.searcher, "max_concurrent", None)
        return limit

    def ask_stopper(self, effect: AskStopper) -> None:
        self._tasks.start(self._ask_stopper(effect))

    def ask_scheduler(self, effect: AskScheduler) -> None:
        self._tasks.start(self._ask_scheduler(effect.trial_id, self._call_of(effect)))

    async def finish(self, deadline_s: float) -> str | None:
        """Wait until the search algorithm has all results, and show what the scheduler says of
        itself. Returns a warning, or None."""
        if self._calls is not None and self._calls.line:
            self._inform(f"{self._calls.name}: {self._calls.line}")
        return await self._search.finish(deadline_s)

    def close(self) -> None:
        """Ask nothing more."""
        self._search.close()
        self.stopping.close()
        self._scheduler.close()
        if self._calls is not None:
            self._calls.close()

    def _may_report(self) -> bool:
        """True if a trial may still report, if only after a person has resumed it."""
        placement = self._machine.placement
        return bool(placement.has_trials or placement.held or self._machine.paused)

    def _announces_wait(self) -> bool:
        """Whether the machine must know that the search waits: it may have to resume paused
        trials, or to wait for a person, and no node is needed for trials that the search does not
        suggest yet."""
        engine = self._plan.engine
        is_elastic = engine is not None and engine.is_elastic
        machine, placement = self._machine, self._machine.placement
        # One whose worker is still ending will wait without another change of the trial.
        soon = (machine.trials[one].is_held for one in (*placement.holds, *placement.waits))
        is_needed = is_elastic or any(soon) or machine.paused
        return bool(is_needed) and not machine.search_waits

    def _search_failed(self, error: BaseException) -> None:
        """End the run. If it has ended already, only warn, so that the results are kept."""
        if self._run_tasks.ended.done():
            self._warn(f"the search algorithm raised {named(error)}")
        else:
            self._run_tasks.fail(error)

    async def _ask_stopper(self, effect: AskStopper) -> None:
        self._post(await self.stopping.ask(effect, self._machine.trials[effect.trial_id]))

    async def _replay(self, calls: SchedulerCalls, history: Iterable[Change]) -> None:
        """Make the calls of earlier runs again, before any other."""
        await self._scheduler.tell_each(calls.replay(history))

    async def _ask_scheduler(self, trial_id: str, call: Callable[[], dict[str, Any]]) -> None:
        """Call the user's functions; an error in them ends the run, as in a search algorithm."""
        answer = await self._scheduler.ask(call)
        self._post(SchedulerAnswered(trial_id=trial_id, answer=answer))

    def _call_of(self, effect: AskScheduler) -> Callable[[], dict[str, Any]]:
        if self._calls is not None:
            return self._calls.call(effect.trial_id, effect.question)
        policy, proposer = self._machine.policy, self._plan.proposer
        assert policy is not None
        trial = self._machine.trials[effect.trial_id]
        about = f"{trial.spec.index}/{trial.iteration}"
        return partial(proposer.with_users_config, effect.question, policy.answer, about)
