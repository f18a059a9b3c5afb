"""The interface of trial schedulers: a small one that does what the reports say."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.scheduler.effects import Effect, Launch, Reply, Verdict
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.scheduler.policies.asha import ASHAScheduler, MultiObjectiveASHAScheduler
from holdfast.scheduler.policies.median import MedianStoppingRule
from holdfast.scheduler.policies.pasha import PASHAScheduler
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    PauseTrial,
    StopTrial,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    View,
)
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.trial import Status

KINDS: dict[str, Callable[..., Decision]] = {
    "stop": StopTrial,
    "pause": PauseTrial,
    "unpause": UnpauseTrial,
}


class Told(TrialScheduler):
    """Does what the row says under "stop", "pause" and "unpause"; keeps what it has seen."""

    def __init__(self, after_end: Sequence[Decision] = ()) -> None:
        self.seen: list[Observation] = []
        self._after_end = after_end

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, (TrialReported, TrialEnded)):
            self.seen.append(event)
        if isinstance(event, TrialEnded):
            return self._after_end
        if not isinstance(event, TrialReported):
            return ()
        return [KINDS[key](trial_id=event.row[key]) for key in event.row if key in KINDS]

    @property
    def ended(self) -> list[str]:
        return [event.trial_id for event in self.seen if isinstance(event, TrialEnded)]


def running(count: int, policy: TrialScheduler | None = None, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, policy=policy or Told(), **spec)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    return run


def told(run: Rehearsal) -> Told:
    """The policy that decides: a copy of the given one."""
    assert isinstance(run.machine.policy, Told)
    return run.machine.policy


def reply(verdict: Verdict, trial_id: str = "t0") -> Reply:
    return Reply(trial_id=trial_id, attempt=1, verdict=verdict)


def launches(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def test_a_policy_sees_each_report_with_our_counts_in_it() -> None:
    run = running(1)
    run.report("t0", {"loss": 1.0})
    (seen,) = told(run).seen
    assert isinstance(seen, TrialReported)
    assert seen.row == {
        "loss": 1.0,
        "training_iteration": 1,
        "trial_id": "t0",
        "time_this_iter_s": 0.5,
        "time_total_s": 0.5,
        "timestamp": int(run.now - 1),
        "iterations_since_restore": 1,
        "time_since_restore": 0.5,
    }


def test_a_trial_that_is_paused_and_stopped_in_one_turn_is_asked_to_stop() -> None:
    run = running(1)
    assert run.report("t0", {"pause": "t0", "stop": "t0"}, checkpoint=True)[-1:] == [
        reply(Verdict.STOP)
    ]


def test_trials_that_are_left_paused_at_the_end_continue() -> None:
    run = running(1)
    run.report("t0", {"pause": "t0"}, checkpoint=True)
    assert launches(run.ends("t0")) == ["t0"]


@pytest.mark.parametrize("order", [{"unpause": "t1"}, {"stop": "t2"}, {"pause": "t2"}])
def test_a_decision_that_does_not_fit_its_trial_changes_nothing(order: dict[str, str]) -> None:
    run = running(3)
    run.ends("t2")
    before = dict(run.machine.trials)
    assert run.report("t0", order) == [reply(Verdict.CONTINUE)]
    assert {**before, "t0": run.trial("t0")} == run.machine.trials


def test_a_report_of_a_trial_that_is_stopping_is_not_shown() -> None:
    run = running(2)
    run.report("t0", {"stop": "t1"})
    assert run.report("t1", {"pause": "t1"}) == [reply(Verdict.STOP, "t1")]
    assert [event.trial_id for event in told(run).seen] == ["t0"]


def test_a_spent_budget_ends_paused_trials() -> None:
    run = running(2)
    run.report("t0", {"pause": "t0"}, checkpoint=True)
    run.ends("t0")
    run.handle(EndOrdered(reason="budget"))
    assert run.trial("t0").status is Status.TERMINATED


def test_a_policy_sees_the_end_of_a_trial_that_a_crash_cut_off_while_it_stopped() -> None:
    run = running(1)
    run.report("t0", {"stop": "t0"})
    run.crash()
    run.resume()
    assert told(run).ended == ["t0"]


def test_a_scheduler_must_define_decide() -> None:
    with pytest.raises(NotImplementedError, match=r"TrialScheduler must define decide\(\)"):
        TrialScheduler().decide(Rehearsal().machine, TrialEnded(trial_id="t0"))


@pytest.mark.parametrize(
    "policy",
    [
        ASHAScheduler(reduction_factor=2),
        MedianStoppingRule("training_iteration", grace_period=1, min_samples_required=1),
        MultiObjectiveASHAScheduler(["loss", "speed"], ["min", "max"], reduction_factor=2),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_what_a_trial_reports_when_it_reaches_a_bound_counts_for_the_others(
    policy: TrialScheduler,
) -> None:
    run = Rehearsal(policy=policy, metric="loss", mode="min", scheduler="x", stop={"speed": 9})
    for trial_id in ("t0", "t1"):
        run.suggest()
        run.start(trial_id)
    (reply,) = run.report("t0", {"loss": 1.0, "speed": 9})
    assert isinstance(reply, Reply)
    assert reply.verdict is Verdict.STOP
    run.ends("t0")
    replies = [one for one in run.report("t1", {"loss": 2.0, "speed": 1}) if type(one) is Reply]
    assert [one.verdict for one in replies] == [Verdict.STOP]


def test_under_pasha_too_what_reaches_a_bound_counts_for_the_others() -> None:
    """The best 1 of 2 continues, and that is the one that has reached the bound."""
    policy = PASHAScheduler(max_t=8, reduction_factor=2)
    run = Rehearsal(policy=policy, metric="loss", mode="min", scheduler="x", stop={"speed": 9})
    for trial_id in ("t0", "t1"):
        run.suggest()
        run.start(trial_id)
    run.report("t0", {"loss": 1.0, "speed": 9}, checkpoint=True)
    run.ends("t0")
    run.report("t1", {"loss": 2.0, "speed": 1}, checkpoint=True)
    assert run.trial("t1").status is Status.PAUSED
    run.ends("t1")
    run.suggest()
    run.start("t2")
    run.report("t2", {"loss": 3.0, "speed": 1}, checkpoint=True)
    run.ends("t2")
    assert run.trial("t1").status is Status.PAUSED
