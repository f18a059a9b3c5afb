"""Schedulers and a trial that a person has paused."""

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.scheduler.effects import Effect
from holdfast.scheduler.events import SearchEnded
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.steering import refusal
from holdfast.testing.rehearsal import Lockstep, Rehearsal
from holdfast.trial.trial import Status
from tests.scheduler.steering.orders import launched, pause, resume


def life(index: int, iteration: int) -> Mapping[str, Any] | None:
    return {"loss": index + 1 / iteration} if iteration <= 9 else None


POLICIES = [
    ASHAScheduler(metric="loss", mode="min", max_t=9, grace_period=1),
    HyperBandScheduler(metric="loss", mode="min", max_t=9),
    PopulationBasedTraining(
        metric="loss",
        mode="min",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [0.1, 0.2]},
        synch=True,
    ),
    PopulationBasedTraining(
        metric="loss", mode="min", perturbation_interval=2, hyperparam_mutations={"lr": [0.1, 0.2]}
    ),
]


class Paused(Lockstep):
    """A person pauses a trial at its third report, and resumes it when nothing else is left."""

    was_paused = False
    has_waited = False

    def _go_on(self, trial_id: str) -> list[Effect]:
        effects = super()._go_on(trial_id)
        if trial_id == "t0" and not self.was_paused and self.run.trial("t0").iteration == 1:
            self.was_paused = True
            if not self.run.trial("t0").status.is_final:
                effects += self.run.handle(pause("t0"))
        return effects

    def to_the_end(self) -> Lockstep:
        try:
            return super().to_the_end()
        except AssertionError:
            if not self.run.machine.waits_for_person:
                raise
        self.has_waited = True
        self._to_do.extend(self.run.handle(resume("t0")))
        return super().to_the_end()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("capacity", [1, 5])
@pytest.mark.parametrize("crashes", [(), (12, 25, 40)])
def test_a_scheduler_gets_on_without_a_paused_trial_and_it_ends_well_after_all(
    policy: TrialScheduler, capacity: int, crashes: tuple[int, ...]
) -> None:
    study = Paused(
        policy, life, trials=5, capacity={"CPU": float(capacity)}, crashes=crashes, num_samples=5
    )
    study.to_the_end()
    assert study.was_paused
    assert all(trial.status is Status.TERMINATED for trial in study.trials)
    assert study.has_waited, "it was not the last to end"


def test_a_trial_that_the_scheduler_has_paused_can_be_paused_and_then_waits_for_both() -> None:
    policy = HyperBandScheduler(metric="loss", mode="min", max_t=9)
    run = Rehearsal(capacity={"CPU": 2}, policy=policy, scheduler="HyperBandScheduler")
    run.suggest()
    run.suggest()
    run.handle(SearchEnded())
    run.start("t0", "t1")
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    run.ends("t0")
    assert run.trial("t0").status is Status.PAUSED
    assert "paused by HyperBandScheduler, which resumes it" in refusal(run.machine, resume("t0"))
    run.handle(pause("t0"))
    assert run.trial("t0").shown_status is Status.PAUSED
    run.report("t1", {"loss": 2.0}, checkpoint=True)
    run.ends("t1")
    assert run.machine.held == ["t0"]  # the scheduler has promoted it
    assert run.trial("t1").status is Status.TERMINATED
    assert launched(run.handle(resume("t0"))) == ["t0"]
