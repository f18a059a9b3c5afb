"""After the search, the machine runs the best configs again: which, when, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from holdfast.scheduler.confirming import fresh_runs
from holdfast.scheduler.effects import Effect, Finish, Suggest
from holdfast.scheduler.events import EndOrdered, SamplesAdded, SearchEnded, Suggested
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policy import FIFOScheduler, TrialScheduler
from holdfast.testing.rehearsal import Lockstep, Rehearsal, trial_spec
from holdfast.trial.best import confirmed
from holdfast.trial.trial import Status, StopReason, Trial

GOAL: dict[str, Any] = {"metric": "loss", "mode": "min", "num_samples": 5, "confirm": 2}
# The best by luck is t3, then t0 and t4.
LOSSES = [0.2, 0.9, 0.8, 0.1, 0.3]
LAST = 3


def life(index: int, iteration: int) -> dict[str, float] | None:
    return {"loss": LOSSES[index] if index < 5 else 0.5} if iteration <= LAST else None


class Study(Lockstep):
    """Five trials with these configs."""

    def __init__(
        self,
        policy: TrialScheduler | None = None,
        configs: Sequence[Mapping[str, Any]] | None = None,
        **given: Any,
    ) -> None:
        self.given = configs
        played = given.pop("life", life)
        super().__init__(policy or FIFOScheduler(), played, trials=5, **{**GOAL, **given})

    def suggest(self) -> list[Effect]:
        index = len(self.trials)
        if self.given is None or index >= len(self.given):
            return super().suggest()
        spec = replace(trial_spec(index), config=self.given[index])
        return self.run.handle(Suggested(spec=spec, is_last=index + 1 == len(self.given)))


def fresh(study: Lockstep) -> list[Trial]:
    return [trial for trial in study.trials if trial.spec.confirms]


def facts(study: Lockstep) -> list[tuple[Any, ...]]:
    return [
        (one.trial_id, one.spec.confirms, dict(one.config), one.status, one.iteration)
        for one in study.trials
    ]


@pytest.mark.parametrize("cpus", [1.0, 2.0, 5.0])
def test_the_three_best_configs_run_again_in_turns(cpus: float) -> None:
    study = Study(capacity={"CPU": cpus}).to_the_end()
    assert [one.spec.confirms for one in fresh(study)] == ["t3", "t0", "t4", "t3", "t0", "t4"]
    assert {one.iteration for one in fresh(study)} == {LAST}
    assert [study.run.trial(one.spec.confirms).config == one.config for one in fresh(study)]
    assert (study.finished, study.run.machine.made_by_search) == (Finish(reason="done"), 5)


def test_without_confirm_no_trial_runs_again() -> None:
    assert fresh(Study(confirm=0).to_the_end()) == []


def test_with_fewer_trials_all_their_configs_run_again() -> None:
    study = Lockstep(FIFOScheduler(), life, trials=1, **{**GOAL, "num_samples": 1}).to_the_end()
    assert [one.spec.confirms for one in fresh(study)] == ["t0", "t0"]


def test_a_trial_without_a_value_is_not_run_again() -> None:
    def some(index: int, iteration: int) -> dict[str, float] | None:
        row = life(index, iteration)
        return row and ({"loss": float("nan")} if index in (0, 3) else row)

    study = Study(life=some).to_the_end()
    assert [one.spec.confirms for one in fresh(study)] == ["t4", "t2", "t1"] * 2


def test_a_crash_after_any_event_changes_nothing() -> None:
    whole = Study(capacity={"CPU": 2.0}).to_the_end()
    known, count = facts(whole), len(whole.run.events)
    for at in range(2, count):
        cut = Study(capacity={"CPU": 2.0}, crashes={at}).to_the_end()
        assert facts(cut) == known, f"a crash after event {at}"


def test_a_finished_run_has_nothing_to_restore_until_confirm_is_raised() -> None:
    study = Study().to_the_end()
    machine = study.run.machine
    assert not machine.has_rest
    wider = replace(machine.spec, confirm=3)
    ids = [one.confirms for one in fresh_runs(wider, machine.trials)]
    assert ids == ["t3", "t0", "t4"]


def test_a_restore_with_more_time_continues_the_search_first() -> None:
    """The budget was over, and the best run again."""
    run = Rehearsal(
        capacity={"CPU": 1}, **{**GOAL, "num_samples": -1}, time_budget_s=8.0, fits_budget=True
    )
    run.suggest()
    trains(run, "t0", 1.0)
    assert run.machine.confirming
    effects = run.resume(changed={"time_budget_s": 9000.0})
    assert effects == [Suggest(index=1)]
    assert not run.machine.confirming


def test_fresh_runs_have_at_most_half_of_the_time() -> None:
    """Six of one slow trial would take all of it, but the trials after it may be faster."""
    run = Rehearsal(
        capacity={"CPU": 1}, **{**GOAL, "num_samples": -1}, time_budget_s=15.0, fits_budget=True
    )
    run.suggest()
    trains(run, "t0", 1.0)
    assert run.machine.active_s < 15.0 / 2
    assert not run.machine.confirming


def test_a_restore_with_free_workers_plans_the_time_of_fresh_runs_on_all_of_them() -> None:
    """Two rounds of eight trials fit the rest of the time, seven of one trial do not."""
    run = Rehearsal(
        capacity={"CPU": 8}, **{**GOAL, "num_samples": -1}, time_budget_s=1.0, fits_budget=True
    )
    run.suggest()
    trains(run, "t0", 1.0)
    trial = run.trial("t0")
    left_s = 4 * (trial.ended_at - trial.began_at)
    effects = run.resume(changed={"time_budget_s": run.machine.active_s + left_s})
    assert effects == [Suggest(index=1)]


def test_a_restore_may_ask_for_fresh_runs_of_a_finished_search() -> None:
    study = Study(confirm=0).to_the_end()
    effects = study.run.resume(changed={"confirm": 2})
    assert [
        effect.again.confirms for effect in effects if isinstance(effect, Suggest) and effect.again
    ] == ["t3"]


def test_a_fresh_run_of_the_same_config_in_another_order_of_trials_has_the_same_seed() -> None:
    configs = [
        {"lr": at / 10, "seed": 7, "net": {"seed": 7}, "random_state": 1} for at in range(5)
    ]
    study = Study(configs=configs).to_the_end()
    first, second, *_ = several = fresh(study)
    seeds = [one.config["seed"] for one in several]
    assert seeds[0] == seeds[1] == seeds[2]
    assert seeds[3] == seeds[4] == seeds[5]
    assert len({7, *seeds}) == 3
    assert first.config == {
        "lr": 0.3,
        "seed": seeds[0],
        "net": {"seed": 7},
        "random_state": seeds[0],
    }
    assert second.config["lr"] == 0.0


def test_the_seed_of_a_trainers_loop_is_another_one_too() -> None:
    configs = [{"train_loop_config": {"lr": at, "seed": 7}} for at in range(5)]
    study = Study(configs=configs).to_the_end()
    assert all(one.config["train_loop_config"]["seed"] != 7 for one in fresh(study))
    assert len({one.config["train_loop_config"]["lr"] for one in fresh(study)}) == 3


def test_a_seed_that_is_no_whole_number_stays() -> None:
    study = Study(configs=[{"lr": at, "seed": None, "random_seed": True} for at in range(5)])
    study.to_the_end()
    assert {(one.config["seed"], one.config["random_seed"]) for one in fresh(study)} == {
        (None, True)
    }


def test_trials_that_differ_only_in_their_seed_are_of_one_config() -> None:
    configs = [{"lr": at % 2, "seed": at, "__trial_index__": at} for at in range(5)]
    study = Study(configs=configs).to_the_end()
    assert [one.spec.confirms for one in fresh(study)] == ["t3", "t0", "t3", "t0"]


def test_a_scheduler_stops_no_fresh_run_early_and_its_end_is_that_of_the_longest_trial() -> None:
    """The trials train as long as ASHA lets them; it would stop the fresh runs."""

    def endless(index: int, iteration: int) -> dict[str, float]:
        return {"loss": LOSSES[index] if index < 5 else 5.0}

    asha = ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
    study = Study(asha, life=endless).to_the_end()
    searched = [one for one in study.trials if not one.spec.confirms]
    assert min(one.iteration for one in searched) < 9
    assert {one.iteration for one in fresh(study)} == {9}
    assert {one.stop and one.stop.reason for one in fresh(study)} == {StopReason.FINISHED}
    assert all(not one.rungs for one in fresh(study))


class Extended(Study):
    """Trials that ASHA and the bound end; once all is over, the bound is raised, and those of the
    search go on."""

    MORE: ClassVar[list[int]] = [4, 8]

    def __init__(self) -> None:
        asha = ASHAScheduler(max_t=99, grace_period=99)
        super().__init__(asha, life=falling, stop={"training_iteration": self.MORE[0]})

    def perform(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, Finish) and self.run.machine.spec.stop != self.bound(1):
            return self.run.resume(changed={"stop": self.bound(1)}, finished="resume")
        return super().perform(effect)

    def bound(self, at: int) -> dict[str, int]:
        return {"training_iteration": self.MORE[at]}


def falling(index: int, iteration: int) -> dict[str, float]:
    return {"loss": (LOSSES[index] if index < 5 else 0.5) / iteration}


def test_fresh_runs_are_made_again_for_a_search_that_was_trained_further() -> None:
    """Those of before end where the search ended then: their values are those of half a run."""
    study = Extended().to_the_end()
    searched = [one for one in study.trials if not one.spec.confirms]
    assert {one.iteration for one in searched} == {8}
    assert [one.iteration for one in fresh(study)] == [4] * 6 + [8] * 6
    assert [one.values for one in confirmed(study.trials, "loss", "min")] == [(0.0625,) * 2] * 3
    assert not study.run.machine.has_rest


def test_the_rungs_of_asha_are_recalled_without_the_fresh_runs() -> None:
    study = Study(ASHAScheduler(max_t=LAST, grace_period=1)).to_the_end()
    assert study.run.machine.recall(
        ASHAScheduler(max_t=LAST, grace_period=1), study.run.machine.spec
    )


class Failing(Study):
    """The first fresh run of each config fails."""

    def go_on(self) -> list[Effect]:
        trial = min(map(self.run.trial, self.running), key=lambda one: one.spec.index)
        if trial.spec.index in (5, 6, 7):
            self.running.discard(trial.trial_id)
            failed = self.run.fails(trial.trial_id)
            return [*failed, *self.run.exits(trial.trial_id)]
        return super().go_on()


def test_a_fresh_run_that_fails_is_not_made_again() -> None:
    study = Failing().to_the_end()
    assert [one.status for one in fresh(study)] == [Status.ERROR] * 3 + [Status.TERMINATED] * 3
    assert [one.runs for one in confirmed(study.trials, "loss", "min")] == [1, 1, 1]
    assert not study.run.machine.has_rest


@pytest.mark.parametrize("reason", ["budget", "interrupt", "stopper", "abort"])
def test_no_fresh_run_starts_while_the_run_ends(reason: Any) -> None:
    run = Rehearsal(capacity={"CPU": 1}, **{**GOAL, "num_samples": 1})
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 1.0})
    run.handle(EndOrdered(reason=reason))
    effects = run.ends("t0")
    assert not any(isinstance(effect, Suggest) for effect in effects)
    assert run.machine.finished


def test_an_extended_search_is_confirmed_with_the_runs_that_lack() -> None:
    """A person adds a sample while the first fresh run is being made; its trial is better."""
    run = Rehearsal(capacity={"CPU": 1}, **{**GOAL, "num_samples": 1})
    run.suggest()
    trains(run, "t0", 1.0)
    (asked,) = run.handle(SearchEnded())
    assert isinstance(asked, Suggest)
    assert asked.again is not None
    run.handle(SamplesAdded(count=1, by="ann", total=2))
    run.repeat(asked.again)
    trains(run, "t1", 1.0)
    run.suggest()
    trains(run, "t2", 0.5)
    left = [one.confirms for one in fresh_runs(run.machine.spec, run.machine.trials)]
    assert left == ["t2", "t2", "t0"]


def trains(run: Rehearsal, trial_id: str, loss: float) -> None:
    run.start(trial_id)
    run.report(trial_id, {"loss": loss})
    run.ends(trial_id)


def test_a_search_that_ends_without_a_value_ends_without_fresh_runs() -> None:
    run = Rehearsal(capacity={"CPU": 1}, **{**GOAL, "num_samples": -1})
    run.suggest()
    run.start("t0")
    run.ends("t0")
    assert run.handle(SearchEnded()) == [Finish(reason="done")]


def test_a_trial_that_changed_its_config_is_no_run_of_one_config() -> None:
    study = Study(confirm=0).to_the_end()
    machine = study.run.machine
    machine.trials["t3"] = replace(machine.trials["t3"], changed_config={"lr": 9})
    assert list(fresh_runs(replace(machine.spec, confirm=2), machine.trials)) == []
