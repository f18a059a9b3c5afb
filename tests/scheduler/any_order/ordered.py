"""A rehearsal that checks that each trial continues as it was ordered."""

from collections.abc import Mapping
from typing import Any

from holdfast.scheduler.effects import Effect, Launch
from holdfast.scheduler.events import Event
from holdfast.scheduler.policy import ChangeTrial, CloneTrial, Decision, StopTrial
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Origin, Status, Trial


class Ordered(Rehearsal):
    """Tracks how each trial must continue, from the scheduler's decisions.

    While the run is ending, the machine's reaction to a decision is accepted as it is.
    """

    def __init__(self, **given: Any) -> None:
        self.configs: dict[str, Mapping[str, Any]] = {}
        self.requests: dict[str, PlacementGroupFactory] = {}
        self.origins: dict[str, Origin] = {}
        super().__init__(**given)

    def handle(self, event: Event, *, after_s: float = 1.0) -> list[Effect]:
        before = dict(self.machine.trials)
        effects = super().handle(event, after_s=after_s)
        for trial_id in self.machine.trials.keys() - before.keys():
            self.accept(self.trial(trial_id))
        over: set[str] = set()
        for decisions in self.machine.answers:
            for one in decisions:
                self.account(one, before, over)
        return effects

    def account(self, decision: Decision, before: Mapping[str, Trial], over: set[str]) -> None:
        """`before` are the trials before the event, `over` those that it has ended."""
        if not isinstance(decision, (StopTrial, CloneTrial, ChangeTrial)):
            return
        trial_id = decision.trial_id
        was = before[trial_id].status if trial_id in before else Status.PENDING
        if self.machine.ending:
            self.accept(self.trial(trial_id))
        elif was not in (Status.PENDING, Status.RUNNING, Status.PAUSED) or trial_id in over:
            return
        elif isinstance(decision, StopTrial):
            over.add(trial_id)
        elif isinstance(decision, ChangeTrial):
            self.configs[trial_id] = decision.config or self.configs[trial_id]
            self.requests[trial_id] = decision.resources or self.requests[trial_id]
        elif decision.source != trial_id:
            self.configs[trial_id] = decision.config
            newest = self.trial(decision.source).newest_checkpoint
            assert newest is not None, "the run goes on without what the clone is to begin from"
            self.origins[trial_id] = Origin(trial_id=decision.source, checkpoint=newest)

    def resume(self, **given: Any) -> list[Effect]:
        """A trial that restarts, or continues after its end, forgets its orders."""
        before = list(self.machine.trials.values())
        effects = super().resume(**given)
        for was in before:
            is_over = was.status.is_final or was.status is Status.STOPPING
            if is_over or given["unfinished"] == "restart":
                self.accept(self.trial(was.trial_id))
        return effects

    def accept(self, trial: Trial) -> None:
        """Accept the machine's state."""
        trial_id = trial.trial_id
        self.configs[trial_id], self.requests[trial_id] = trial.config, trial.spec.resources
        self.origins.pop(trial_id, None)
        if trial.origin is not None:
            self.origins[trial_id] = trial.origin

    def check(self, launch: Launch) -> None:
        """Check that a trial continues with what was ordered."""
        trial_id = launch.trial_id
        assert self.trial(trial_id).config == self.configs[trial_id]
        assert self.trial(trial_id).spec.resources == self.requests[trial_id]
        assert launch.allocation.amounts == self.trial(trial_id).granted.required_resources
        assert launch.origin == self.origins.get(trial_id)
