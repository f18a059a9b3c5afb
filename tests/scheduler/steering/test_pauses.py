"""What a pause ordered by a person does: when it happens, and what it survives."""

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.scheduler.effects import Effect, Finish, Halt, Launch, Reply, Verdict
from holdfast.scheduler.events import EndOrdered, SearchEnded, SearchWaits
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.steering import refusal
from holdfast.testing.rehearsal import Lockstep, Rehearsal
from holdfast.trial.trial import Status
from tests.scheduler.steering.orders import launched, pause, paused, resume, running


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

    def go_on(self) -> list[Effect]:
        if not self.running and self.run.machine.waits_for_person:
            self.has_waited = True
            return self.run.handle(resume("t0"))
        effects = super().go_on()
        if not self.was_paused and self.run.trial("t0").iteration == 1:
            self.was_paused = True
            if not self.run.trial("t0").status.is_final:
                effects += self.run.handle(pause("t0"))
        return effects


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


def waits(run: Rehearsal) -> bool:
    return run.machine.waits_for_person


def verdict(effects: list[Effect]) -> Verdict:
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    return reply.verdict


def test_a_trial_that_waits_does_not_start_until_it_is_resumed() -> None:
    run = running()
    run.suggest()
    run.handle(SearchEnded())
    run.handle(pause("t1"))
    assert run.trial("t1").shown_status is Status.PAUSED
    assert run.trial("t1").status is Status.PENDING
    assert launched(run.ends("t0")) == []
    assert not run.machine.finished
    assert waits(run)
    assert launched(run.handle(resume("t1"))) == ["t1"]


def test_a_running_trial_pauses_at_its_next_report_with_a_checkpoint() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    assert run.trial("t0").is_pausing
    assert verdict(run.report("t0")) is Verdict.CONTINUE
    assert verdict(run.report("t0", checkpoint=True)) is Verdict.PAUSE
    run.ends("t0")
    trial = run.trial("t0")
    assert (trial.status, trial.shown_status) == (Status.PENDING, Status.PAUSED)
    assert not run.machine.placement.holds
    (launch,) = run.handle(resume("t0"))
    assert isinstance(launch, Launch)
    assert launch.checkpoint is not None
    assert launch.checkpoint.iteration == 2


def test_a_trainable_that_saves_when_told_pauses_at_its_next_report() -> None:
    run = running(saves_when_told=True)
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    assert verdict(run.report("t0")) is Verdict.PAUSE
    run.save("t0")
    run.ends("t0")
    assert run.machine.held == ["t0"]
    (launch,) = run.handle(resume("t0"))
    assert isinstance(launch, Launch)
    assert launch.checkpoint is not None
    assert launch.checkpoint.iteration == 1


def test_a_pause_that_has_not_happened_can_be_taken_back() -> None:
    run = running()
    run.handle(pause("t0"))
    run.handle(resume("t0"))
    assert verdict(run.report("t0", checkpoint=True)) is Verdict.CONTINUE


def test_a_trial_that_pauses_and_is_resumed_before_its_worker_has_ended_runs_on() -> None:
    run = running()
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    assert launched(run.handle(resume("t0"))) == []
    run.returns("t0")
    assert launched(run.exits("t0")) == ["t0"]


def test_a_pause_at_once_takes_the_worker_from_a_running_and_from_a_starting_trial() -> None:
    run = running(2)
    run.suggest()
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    run.report("t0")
    assert run.handle(pause("t0", now=True)) == [Halt(trial_id="t0", attempt=1)]
    assert launched(run.exits("t0")) == ["t2"]
    assert run.handle(pause("t2", now=True)) == [Halt(trial_id="t2", attempt=1)]
    assert run.exits("t2") == []
    assert run.machine.held == ["t0", "t2"]
    (launch,) = run.handle(resume("t0"))
    assert isinstance(launch, Launch)
    assert (launch.attempt, launch.checkpoint and launch.checkpoint.iteration) == (2, 1)


def test_a_pause_can_be_hurried() -> None:
    run = running()
    run.handle(pause("t0"))
    assert run.handle(pause("t0", now=True)) == [Halt(trial_id="t0", attempt=1)]


def test_the_end_of_the_run_by_its_budget_ends_paused_trials_that_have_begun() -> None:
    run = paused()
    assert run.handle(EndOrdered(reason="budget")) == [Finish(reason="budget")]
    assert run.trial("t0").status is Status.TERMINATED


def test_an_interrupt_leaves_paused_trials_paused_after_a_restore() -> None:
    run = paused()
    assert run.handle(EndOrdered(reason="interrupt")) == [Finish(reason="interrupt")]
    run.crash()
    assert launched(run.resume()) == []
    assert waits(run)
    assert launched(run.handle(resume("t0"))) == ["t0"]


def test_the_run_does_not_wait_for_a_paused_trial_that_a_restore_skips() -> None:
    run = paused()
    run.crash()
    assert Finish(reason="done") in run.resume(unfinished="skip")
    assert run.trial("t0").is_held


def test_the_pause_of_a_trial_that_a_restore_skips_keeps_no_run_waiting() -> None:
    run = running(2)
    run.handle(SearchEnded())
    run.crash()
    run.resume(unfinished="skip", finished="skip")
    assert run.machine.finished
    run = running(2)
    run.report("t0", checkpoint=True)
    run.crash()
    run.resume(unfinished="skip")
    run.handle(pause("t0"))
    assert run.machine.held == []
    assert run.handle(SearchEnded()) == [Finish(reason="done")]


def test_a_search_that_waits_waits_with_the_run_for_a_person() -> None:
    run = running()
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    run.ends("t0")
    assert run.machine.asking
    assert not waits(run)  # the search is asked
    assert run.handle(SearchWaits()) == []
    assert waits(run)
    assert launched(run.handle(resume("t0"))) == ["t0"]
