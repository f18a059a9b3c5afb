"""Trials that get more or fewer resources while they run, under another scheduler."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import AskScheduler, Warn
from holdfast.scheduler.events import SchedulerAnswered, SearchEnded
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.resource_changing import (
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceChangingScheduler,
    Sharing,
    SharingTerms,
    SharingTrial,
)
from holdfast.testing.rehearsal import Lockstep, Rehearsal
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Status


def cpus(amount: float) -> PlacementGroupFactory:
    return PlacementGroupFactory([{"CPU": amount}])


def sharing(
    held: list[float], total: Mapping[str, float], base: float = 1, **more: Any
) -> tuple[Sharing, SharingTerms]:
    """Trials that began with `base` CPUs and have `held` now; t0 is the best."""
    trials = [
        SharingTrial(
            trial_id=f"t{index}",
            status="RUNNING",
            placement_group_factory=cpus(amount),
            base_resources=cpus(base),
            last_result={"loss": index},
        )
        for index, amount in enumerate(held)
    ]
    terms = SharingTerms(base_trial_resources=cpus(base), metric="loss", mode="min")
    return Sharing(trials=trials, total_resources=total, **more), terms


def shares(function: DistributeResources, held: list[float], total: float, **more: Any) -> Any:
    known, terms = sharing(held, {"CPU": total}, **more)
    given = [function(known, trial, {}, terms) for trial in known.trials]
    return [one.required_resources["CPU"] for one in given]


def test_what_is_free_is_given_to_all_alike_and_the_rest_to_the_first() -> None:
    assert shares(DistributeResources(), [1], 8) == [8]
    assert shares(DistributeResources(), [1, 1, 1], 8) == [3, 3, 2]
    assert shares(DistributeResources(), [1, 1, 1], 2) == [1, 1, 1]
    assert shares(DistributeResources(increase_by={"CPU": 2}), [1, 1], 8) == [5, 3]
    assert shares(DistributeResources(increase_by_times=2), [1], 8) == [3]
    assert shares(DistributeResources(reserve_resources={"CPU": 4}), [1, 1], 8) == [2, 2]
    assert shares(DistributeResources(increase_by={"CPU": 0.3}), [1], 1.9) == [1.9]


def test_a_trial_grows_only_by_what_is_free_now_and_gives_back_what_is_too_much() -> None:
    assert shares(DistributeResources(), [1, 6], 8) == [2, 4]


def test_what_the_search_may_still_want_is_not_given_away() -> None:
    assert shares(DistributeResources(), [1, 1], 8, expected=None) == [1, 1]
    assert shares(DistributeResources(), [1, 1], 8, expected=2) == [2, 2]


def test_the_best_trial_has_what_is_free() -> None:
    assert shares(DistributeResourcesToTopJob(), [1, 1, 1], 8) == [6, 1, 1]
    assert shares(DistributeResourcesToTopJob(mode="max"), [1, 1, 1], 8) == [1, 1, 6]
    assert shares(DistributeResourcesToTopJob(metric="other"), [1, 1, 1], 8) == [1, 1, 1]


def test_a_group_of_workers_gets_more_bundles_and_a_gpu_comes_with_its_cpus() -> None:
    known, terms = sharing([1], {"CPU": 3})
    given = DistributeResources(add_bundles=True)(known, known.trials[0], {}, terms)
    assert list(given.bundles) == [{"CPU": 1}] * 3
    base = PlacementGroupFactory([{"CPU": 1, "GPU": 1}])
    trial = SharingTrial(
        trial_id="t0",
        status="RUNNING",
        placement_group_factory=base,
        base_resources=base,
        last_result={},
    )
    gpus = Sharing(trials=[trial], total_resources={"CPU": 9, "GPU": 2})
    assert list(DistributeResources()(gpus, trial, {}, terms).bundles) == [{"CPU": 5, "GPU": 2}]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 20), st.booleans())
def test_never_is_more_given_than_there_is_when_trials_report_in_turn(
    held: list[float], total: int, top: bool
) -> None:
    function = DistributeResourcesToTopJob() if top else DistributeResources()
    for _ in range(3):
        for index in range(len(held)):
            before = sum(held)
            known, terms = sharing(held, {"CPU": total})
            held[index] = function(known, known.trials[index], {}, terms).required_resources["CPU"]
            assert held[index] >= 1
            assert sum(held) <= max(total, before)
    assert sum(held) == max(total, len(held))


def life(index: int, at: int) -> Mapping[str, Any] | None:
    return {"loss": 10.0 * index + at} if at <= 4 + 2 * index else None


def test_the_last_trials_get_what_the_others_leave() -> None:
    study = Lockstep(ResourceChangingScheduler(), life, trials=3, capacity={"CPU": 6.0})
    resources = []
    study.to_the_end()
    resources = [trial.spec.resources.required_resources["CPU"] for trial in study.trials]
    assert resources[-1] == 6
    assert study.ends == [("TERMINATED", 4), ("TERMINATED", 6), ("TERMINATED", 8)]


def running(scheduler: ResourceChangingScheduler, **spec: Any) -> Rehearsal:
    run = Rehearsal(
        capacity={"CPU": 4.0}, policy=scheduler, scheduler="ResourceChangingScheduler", **spec
    )
    for index in range(2):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    return run


def test_trials_that_a_restore_resumes_keep_their_share() -> None:
    run = Rehearsal(
        capacity={"CPU": 4.0},
        policy=ResourceChangingScheduler(),
        scheduler="ResourceChangingScheduler",
        saves_when_told=True,
        max_concurrent=2,
    )
    for trial_id in ("t0", "t1"):
        run.suggest()
        run.start(trial_id)
    run.handle(SearchEnded())
    for trial_id in ("t0", "t1"):
        run.fails(trial_id)
        run.exits(trial_id)
    run.resume(errored="resume")
    run.start("t0", "t1")
    run.report("t0")
    assert run.trial("t0").spec.resources == cpus(2.0)
    run.report("t1")
    assert run.trial("t1").spec.resources == cpus(2.0)


def test_a_function_is_changed_only_at_a_report_with_a_checkpoint() -> None:
    run = running(ResourceChangingScheduler())
    run.report("t0")
    assert run.trial("t0").status is Status.RUNNING
    run.report("t0", checkpoint=True)
    assert run.trial("t0").status is Status.PAUSED
    assert run.trial("t0").spec.resources == cpus(2)
    run.ends("t0")
    run.start("t0")
    run.report("t0", checkpoint=True)
    assert run.trial("t0").status is Status.RUNNING


def test_that_a_function_never_saved_itself_is_reported_once() -> None:
    run = running(ResourceChangingScheduler())
    told = []
    for trial_id in ("t0", "t1"):
        run.report(trial_id)
        told += [effect for effect in run.ends(trial_id) if isinstance(effect, Warn)]
    (warning,) = told
    assert "train_t0 reported no checkpoint" in warning.text
    saving = running(ResourceChangingScheduler(None, lambda *_: None), saves_when_told=True)
    saving.report("t0")
    assert not [effect for effect in saving.ends("t0") if isinstance(effect, Warn)]


def test_what_the_other_scheduler_decides_comes_first() -> None:
    run = running(ResourceChangingScheduler(ASHAScheduler(max_t=1, metric="loss", mode="min")))
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    assert run.trial("t0").status is Status.STOPPING


def doubling(
    controller: Sharing, trial: SharingTrial, result: Mapping[str, Any], scheduler: SharingTerms
) -> Any:
    assert [one.trial_id for one in controller.get_live_trials()] == ["t0", "t1"]
    assert controller.total_resources == {"CPU": 4}
    assert (trial.config, result["loss"]) == ({"lr": 1.0}, 1.0)
    assert trial.placement_group_factory == scheduler.base_trial_resources == cpus(1)
    return {"CPU": 2}


def answer(run: Rehearsal, question: AskScheduler) -> None:
    assert run.machine.policy is not None
    given = run.machine.policy.answer(question.question)
    run.handle(SchedulerAnswered(trial_id=question.trial_id, answer=given))


def test_a_function_of_the_users_is_asked_outside_and_its_answer_counts() -> None:
    run = running(ResourceChangingScheduler(resources_allocation_function=doubling))
    (question,) = [
        effect
        for effect in run.report("t0", {"loss": 1.0}, checkpoint=True)
        if isinstance(effect, AskScheduler)
    ]
    answer(run, question)
    assert run.trial("t0").spec.resources == cpus(2)
    assert run.trial("t0").status is Status.PAUSED


@pytest.mark.parametrize(
    ("given", "status"), [(None, Status.RUNNING), ({"CPU": 1}, Status.RUNNING)]
)
def test_no_answer_and_the_same_again_change_nothing(given: Any, status: Status) -> None:
    run = running(ResourceChangingScheduler(resources_allocation_function=lambda *_: given))
    effects = run.report("t0", {"loss": 1.0}, checkpoint=True)
    (question,) = [effect for effect in effects if isinstance(effect, AskScheduler)]
    answer(run, question)
    assert run.trial("t0").status is status


def test_an_answer_without_resources_is_refused() -> None:
    three: Any = [3].__getitem__
    run = running(ResourceChangingScheduler(resources_allocation_function=lambda *_: three(0)))
    effects = run.report("t0", {"loss": 1.0}, checkpoint=True)
    (question,) = [effect for effect in effects if isinstance(effect, AskScheduler)]
    with pytest.raises(
        InvalidConfig, match="resources_allocation_function returned invalid resources"
    ):
        answer(run, question)
