"""An experiment that a restore extends or changes, and one that its stopper had ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.experiment.start.extension import Changes, check_enough, extension_notice
from holdfast.scheduler.effects import Effect, Finish, Launch, Suggest, Warn
from holdfast.scheduler.events import EndOrdered, Resumed, SearchEnded
from holdfast.scheduler.resuming import has_work
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import ResumeType
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status


def ended(*, checkpoint: bool = True, samples: int = 1, **spec: Any) -> Rehearsal:
    """An experiment whose trials have reached the bound of 2 iterations; it is finished."""
    given = {"stop": {"training_iteration": 2}, "strict_stop": True, **spec}
    run = Rehearsal(capacity={"CPU": 1}, num_samples=samples, **given)
    for number in range(samples):
        run.suggest()
        run.start(f"t{number}")
        for _ in range(2):
            run.report(f"t{number}", {"loss": 0.5}, checkpoint=checkpoint)
        run.ends(f"t{number}")
    run.handle(SearchEnded())
    assert run.machine.finished
    return run


def launches(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def warnings(effects: list[Effect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, Warn)]


LONGER: dict[str, Any] = {"stop": {"training_iteration": 5}, "stop_number": 1}


def test_more_samples_take_back_that_the_search_had_ended() -> None:
    run = ended()
    assert Suggest(index=1) in run.resume(changed={"num_samples": 2})
    run.suggest()
    run.crash()
    assert run.machine.spec.num_samples == 2
    assert launches(run.resume()) == ["t1"]


def test_another_space_takes_back_that_the_search_had_ended() -> None:
    assert Suggest(index=1) in ended().resume(changed={"space_number": 1, "space_from": 1})


def test_another_stop_alone_begins_no_trial() -> None:
    effects = ended().resume(changed=LONGER)
    assert effects[-1] == Finish(reason="done")
    assert not any(isinstance(effect, Suggest) for effect in effects)


def test_finished_trials_resume_from_their_checkpoints_to_the_new_bound() -> None:
    run = ended()
    (launch,) = [e for e in run.resume(finished="resume", changed=LONGER) if isinstance(e, Launch)]
    assert launch.checkpoint is not None
    assert launch.checkpoint.iteration == 2
    run.start("t0")
    for _ in range(3):
        run.report("t0", {"loss": 0.25}, checkpoint=True)
    assert run.trial("t0").status is Status.STOPPING
    assert run.trial("t0").iteration == 5


def test_a_finished_trial_without_a_checkpoint_stays_finished_and_that_is_reported() -> None:
    run = ended(checkpoint=False)
    effects = run.resume(finished="resume", changed=LONGER)
    assert launches(effects) == []
    (text,) = warnings(effects)
    assert text == (
        "train_t0 finished without a checkpoint to resume from, and stays finished: "
        "ResumeConfig(finished='restart') restarts such trials"
    )
    assert run.trial("t0").iteration == 2
    assert launches(run.resume(finished="restart")) == ["t0"]


def test_many_without_a_checkpoint_are_reported_in_one_sentence() -> None:
    run = ended(checkpoint=False, samples=5)
    (text,) = warnings(run.resume(finished="resume", changed=LONGER))
    assert text.startswith("train_t0, train_t1, train_t2 and 2 more finished")


def test_a_finished_trial_that_has_reached_the_bound_stays_finished() -> None:
    effects = ended().resume(finished="resume")
    assert launches(effects) == []
    assert warnings(effects) == []


def test_another_config_is_that_of_what_runs_from_now_on() -> None:
    run = ended(samples=2, stop={"loss": 9})
    before = run.machine.trials["t0"].config
    run.resume(config={"epochs": 5})
    assert run.machine.trials["t0"].config == before
    assert launches(run.resume(config={"epochs": 5}, finished="resume")) == ["t0"]
    assert [trial.config for trial in run.folded().trials.values()] == [{"epochs": 5}] * 2


def test_what_is_left_to_do_is_known_before_it_is_done() -> None:
    run = ended()
    machine = run.machine

    def is_anything_left(finished: ResumeType = ResumeType.SKIP, **changed: Any) -> bool:
        spec = replace(machine.spec, **changed) if changed else None
        resumed = Resumed(epoch=2, capacity={}, finished=finished, spec=spec)
        return has_work(machine, resumed)

    assert not is_anything_left()
    assert not is_anything_left(ResumeType.RESUME)
    assert not is_anything_left(**LONGER)
    assert is_anything_left(ResumeType.RESUME, **LONGER)
    assert is_anything_left(num_samples=2)
    assert is_anything_left(space_number=1)
    assert not is_anything_left(num_samples=2, time_budget_s=machine.active_s)


def test_fewer_samples_than_there_are_trials_are_refused() -> None:
    machine = ended(samples=3).machine
    check_enough(machine, Changes(num_samples=3), 3)
    check_enough(machine, Changes(num_samples=-1), None)
    with pytest.raises(InvalidConfig, match="num_samples=2 makes 2 trials in all, and 3 exist"):
        check_enough(machine, Changes(num_samples=2), 2)


def test_a_notice_says_that_a_scheduler_still_has_its_say_and_a_new_space_needs_samples() -> None:
    machine = ended(scheduler="ASHAScheduler").machine
    spec = replace(machine.spec, **LONGER)
    first = Resumed(epoch=2, capacity={}, finished=ResumeType.RESUME, spec=spec)
    changes = Changes(stop={"training_iteration": 5}, param_space={}, before=machine.spec)
    lines = extension_notice(machine, first, changes, 1).splitlines()
    assert lines[-2:] == [
        "  finished trials that resume: 1 of 1, as long as ASHAScheduler lets them",
        "  trials still to start: 0, a larger num_samples starts some in the new param_space",
    ]


# -- settings that hold from the next start on ---------------------------------------------------


# -- what reports have to hold ------------------------------------------------------------------


def test_a_new_name_in_stop_is_looked_for_in_the_first_report_where_there_was_none() -> None:
    run = Rehearsal(stop={"loss": 1}, strict_stop=True)
    run.suggest()
    run.start("t0")
    run.crash()
    run.resume(changed={"stop": {"lost": 1}, "stop_number": 1})
    run.start("t0")
    run.report("t0", {"loss": 0.5})
    assert run.machine.ending is not None
    assert "RunConfig(stop={'lost': ...})" in run.machine.ending.message


def test_an_experiment_that_has_reports_is_kept_under_a_new_name() -> None:
    run = ended()
    run.resume(changed={"stop": {"late": 1}, "stop_number": 1})
    assert not run.machine.has_nothing


def test_a_metric_that_a_stopper_watches_is_looked_for_in_the_first_report() -> None:
    run = Rehearsal(has_stopper=True, stop_metrics=("lost",), strict_stop=True)
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 0.5})
    assert run.machine.ending is not None
    assert run.machine.ending.reason == "abort"
    assert "stop=...Stopper(metric='lost')" in run.machine.ending.message
    assert "Did you mean 'loss'?" in run.machine.ending.message


# -- time, and the ends of stoppers -------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget_s", "timeout_s", "least"), [(5, None, 5), (None, 4, 4), (5, 4, 4), (None, None, None)]
)
def test_the_least_of_budget_and_timeout_counts(budget_s: Any, timeout_s: Any, least: Any) -> None:
    run = Rehearsal(time_budget_s=budget_s, timeout_s=timeout_s)
    assert run.machine.spec.budget_s == least


def test_a_spent_timeout_begins_nothing_and_a_longer_one_continues() -> None:
    run = Rehearsal(timeout_s=2.0)
    run.suggest()
    run.start("t0")
    run.crash()
    for _ in range(2):
        effects = run.resume()
        assert effects[-1] == Finish(reason="budget", message="the time budget of 2 s is used up")
    effects = run.resume(changed={"timeout_s": 100.0, "stop_number": 1})
    assert launches(effects) == ["t0"]


def test_after_a_spent_budget_only_a_larger_one_leaves_anything_to_do() -> None:
    run = Rehearsal(time_budget_s=1.0)
    run.handle(EndOrdered(reason="budget"))
    assert run.machine.finished
    again = Resumed(epoch=2, capacity={})
    assert not has_work(run.machine, again)
    assert has_work(run.machine, replace(again, spec=replace(run.machine.spec, time_budget_s=9.0)))


def stopped_by_stopper() -> Rehearsal:
    """Its stopper has ended it; then the controller was killed, while t0 was being stopped."""
    run = Rehearsal(has_stopper=True, capacity={"CPU": 1}, num_samples=9)
    run.suggest()
    run.start("t0")
    run.report("t0")
    run.answer("t0", stop_all=True)
    run.crash()
    return run


def test_what_a_stopper_has_ended_stays_ended() -> None:
    run = stopped_by_stopper()
    effects = run.resume()
    assert effects == [Finish(reason="stopper", message="the stopper ended the experiment")]
    assert run.trial("t0").status is Status.TERMINATED
    run.crash()
    assert run.resume(changed={"num_samples": 20})[-1].__class__ is Finish


def test_another_stopper_lets_it_continue() -> None:
    run = stopped_by_stopper()
    assert Suggest(index=1) in run.resume(changed={"stop_number": 1})
