"""Asks the user's searcher, stopper and scheduler in their threads, and posts the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.replay import Change
from holdfast.experiment.control.scheduler_calls import SchedulerCalls
from holdfast.experiment.control.search_thread import SearchThread
from holdfast.experiment.control.stopper_thread import StopperThread
from holdfast.experiment.control.user_threads import UserThread
from holdfast.runtime.tasks import RunTasks, TaskScope
from holdfast.scheduler.effects import AskScheduler, AskStopper, Suggest
from holdfast.scheduler.events import Event, Resumed, SamplesAdded, SchedulerAnswered, Suggested
from holdfast.scheduler.resuming import kept_ahead
from holdfast.text.errors import named
from holdfast.trial.trial import Trial


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
        """Ask the search for a trial, or make one of a config that a person has added."""
        if effect.config is None:
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
        """Whether a trial may still report, if only after a person has resumed it."""
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
        soon = (machine.trials[one].is_held for one in (*placement.holds, *placement.delayed))
        is_needed = is_elastic or placement.held or any(soon) or machine.paused
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
