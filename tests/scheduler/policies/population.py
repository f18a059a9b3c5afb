"""A population whose workers a test plays: it answers each report, and copies checkpoints for
clones."""

from collections.abc import Mapping
from typing import Any

from holdfast.scheduler.effects import AskScheduler, Effect, Suggest
from holdfast.scheduler.events import SchedulerAnswered, SearchEnded
from holdfast.scheduler.policy import CloneTrial, Decision, TrialScheduler
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.trial import Status


class Play:
    """`size` trials on `room` CPUs; functions that report a checkpoint each time."""

    def __init__(
        self, policy: TrialScheduler, size: int, room: int | None = None, **spec: Any
    ) -> None:
        known = {"metric": "loss", "mode": "min", "num_samples": size, "scheduler": "PBT"}
        capacity = {"CPU": float(room or size)}
        self.run = Rehearsal(capacity=capacity, policy=policy, **{**known, **spec})
        self.size = size
        self.decided: list[list[Decision]] = []
        self._follow(self.run.began)
        self.settle()

    def running(self) -> list[str]:
        trials = self.run.machine.trials.values()
        return [trial.trial_id for trial in trials if trial.status is Status.RUNNING]

    def config(self, trial_id: str) -> Mapping[str, Any]:
        return self.run.trial(trial_id).config

    def report(self, trial_id: str, loss: float, **more: Any) -> list[Decision]:
        """Report; returns the decision. `settle` does the rest."""
        effects = self.run.report(trial_id, {"loss": loss, **more}, checkpoint=True)
        decided = [one for answer in self.run.machine.answers for one in answer]
        self._follow(effects)
        return decided

    def step(self, trial_id: str, loss: float, **more: Any) -> list[Decision]:
        decided = self.report(trial_id, loss, **more)
        self.settle()
        return decided

    def settle(self) -> None:
        """Let workers with an order end, and waiting ones start."""
        while any(map(self._moves_on, list(self.run.machine.trials))):
            pass

    def _moves_on(self, trial_id: str) -> bool:
        run, trial = self.run, self.run.trial(trial_id)
        if trial_id in run.machine.placement.holds and not trial.status.has_worker:
            self._follow(run.exits(trial_id))
        elif trial.status is Status.STARTING and trial.origin is not None:
            self._follow(run.adopt(trial_id))
        elif trial.status is Status.STARTING:
            self._follow(run.start(trial_id))
        else:
            return False
        return True

    def crash(self) -> None:
        """Kill all processes, and restore the experiment."""
        self.run.crash()
        self._follow(self.run.resume())

    def _follow(self, effects: list[Effect]) -> None:
        """Record the decisions, and answer like the search and the user's code."""
        self.decided.append([one for answer in self.run.machine.answers for one in answer])
        for effect in effects:
            if isinstance(effect, Suggest):
                more = len(self.run.machine.trials) < self.size
                self._follow(self.run.suggest() if more else self.run.handle(SearchEnded()))
            elif isinstance(effect, AskScheduler):
                policy = self.run.machine.policy
                assert policy is not None
                answer = policy.answer(effect.question)
                event = SchedulerAnswered(trial_id=effect.trial_id, answer=answer)
                self._follow(self.run.handle(event))

    def clones(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """The clones: source, target and new config."""
        return [
            (one.trial_id, one.source, one.config)
            for decided in self.decided
            for one in decided
            if isinstance(one, CloneTrial)
        ]
