"""Schedulers with the methods that Ray calls: which calls are made, and what their answers do."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.scheduler.effects import AskScheduler, Effect, Launch, Reply, Suggest, Verdict, Warn
from holdfast.scheduler.events import SchedulerAnswered, SearchEnded
from holdfast.scheduler.policies.ray_style import RayStyleScheduler, scheduler_of
from holdfast.scheduler.policy import FIFOScheduler, TrialScheduler
from holdfast.simulate.study import simulate
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import TuneConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status
from holdfast.tune.schedulers import (
    PB2,
    ASHAScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)


class Judge(FIFOScheduler):
    """Only the shell calls it: these tests give its answers."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        raise AssertionError("the machine called the user's code")


class Chooser(Judge):
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        raise AssertionError("the machine called the user's code")


class Watcher(FIFOScheduler):
    def on_trial_add(self, tune_controller: Any, trial: Any) -> None: ...
    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Any) -> None: ...
    def on_trial_error(self, tune_controller: Any, trial: Any) -> None: ...
    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None: ...


def running(users: TrialScheduler, trials: int = 2, **spec: Any) -> Rehearsal:
    policy = scheduler_of(users)
    run = Rehearsal(capacity={"CPU": float(trials)}, policy=policy, scheduler="Judge", **spec)
    for index in range(trials):
        run.suggest()
        run.start(f"t{index}")
    return run


def answer(run: Rehearsal, trial_id: str, said: str | None = None, **more: Any) -> list[Effect]:
    call = run.machine.questions[trial_id]["call"]
    given = {"call": call, "said": said, "orders": [], **more}
    return run.handle(SchedulerAnswered(trial_id=trial_id, answer=given))


def asked(effects: list[Effect]) -> list[tuple[str, str]]:
    questions = (one for one in effects if isinstance(one, AskScheduler))
    return [(one.trial_id, one.question["call"]) for one in questions]


def verdicts(effects: list[Effect]) -> list[Verdict]:
    return [one.verdict for one in effects if isinstance(one, Reply)]


def launched(effects: list[Effect]) -> list[str]:
    return [one.trial_id for one in effects if isinstance(one, Launch)]


def test_a_stopped_trial_names_the_users_class() -> None:
    run = running(Judge())
    run.report("t0")
    answer(run, "t0", "STOP")
    run.ends("t0")
    stop = run.trial("t0").stop
    assert stop is not None
    assert stop.by == "Judge"


def test_a_trial_that_pauses_alone_resumes_at_once() -> None:
    run = running(Judge(), 1)
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    assert verdicts(answer(run, "t0", "PAUSE")) == [Verdict.PAUSE]
    assert launched(run.ends("t0")) == ["t0"]


def test_a_trial_that_pauses_without_a_checkpoint_starts_from_scratch_and_that_is_said_once() -> (
    None
):
    run = running(Judge(), 1)
    run.handle(SearchEnded())
    texts = []
    for _ in range(2):
        run.report("t0")
        texts += [one.text for one in answer(run, "t0", "PAUSE") if isinstance(one, Warn)]
        run.ends("t0")
        run.start("t0")
        assert run.trial("t0").iteration == 0
    assert len(texts) == 1
    assert "has reported none in 1 iterations: when it resumes, it starts from scratch" in texts[0]


def test_each_end_has_its_call() -> None:
    run = Rehearsal(capacity={"CPU": 2.0}, policy=scheduler_of(Watcher()), scheduler="Watcher")
    for index in range(3):
        assert asked(run.suggest()) == [(f"t{index}", "on_trial_add")]
    assert "t0" not in run.machine.placement.queue  # it starts after the call
    for trial_id in ("t0", "t1"):
        assert launched(answer(run, trial_id)) == [trial_id]
        run.start(trial_id)
    answer(run, "t2")
    run.handle(SearchEnded())
    run.report("t0")
    assert asked(run.returns("t0")) == [("t0", "on_trial_complete")]
    assert asked(run.fails("t1")) == [("t1", "on_trial_error")]
    effects = answer(run, "t0", orders=[["STOP", "t2"]])
    assert asked(effects) == [("t2", "on_trial_remove")]
    run.exits("t0")
    run.exits("t1")
    answer(run, "t1")
    assert not run.machine.finished  # the last call has not returned
    answer(run, "t2")
    assert run.machine.finished


def test_the_end_of_a_trial_waits_for_the_call_about_its_report() -> None:
    class Both(Judge, Watcher): ...

    run = Rehearsal(capacity={"CPU": 1.0}, policy=scheduler_of(Both()), scheduler="Both")
    run.suggest()
    answer(run, "t0")
    run.start("t0")
    run.report("t0")
    assert asked(run.exits("t0", kind="lost")) == []
    assert asked(answer(run, "t0", "PAUSE")) == [("t0", "on_trial_error")]
    assert run.trial("t0").status is Status.ERROR


def test_it_chooses_which_paused_trial_resumes_and_the_report_waits_for_that_too() -> None:
    run = running(Chooser(), 3)
    run.handle(SearchEnded())
    for trial_id in ("t0", "t1"):
        run.report(trial_id, checkpoint=True)
        effects = answer(run, trial_id, "PAUSE")
        assert asked(effects) == [(trial_id, "choose_trial_to_run")]
        assert verdicts(effects) == [Verdict.PAUSE]  # its worker need not wait
        answer(run, trial_id, chosen=None)
        run.ends(trial_id)
    run.report("t2")
    effects = answer(run, "t2", "CONTINUE")
    assert (asked(effects), verdicts(effects)) == ([("t2", "choose_trial_to_run")], [])
    effects = answer(run, "t2", chosen="t1")
    assert launched(effects) == ["t1"]
    assert asked(effects) == [("t2", "choose_trial_to_run")]  # one is paused still
    assert verdicts(answer(run, "t2", chosen=None)) == [Verdict.CONTINUE]
    assert run.trial("t0").status is Status.PAUSED


@pytest.mark.parametrize(("chosen", "resumed"), [("t1", ["t1"]), (None, ["t0", "t1"])])
def test_when_all_are_paused_it_chooses_or_all_resume(
    chosen: str | None, resumed: list[str]
) -> None:
    run = running(Chooser())
    run.handle(SearchEnded())
    for trial_id in ("t0", "t1"):
        run.report(trial_id, checkpoint=True)
        answer(run, trial_id, "PAUSE")
        answer(run, trial_id, chosen=None)
    run.ends("t0")
    effects = run.ends("t1")
    assert asked(effects) == [("t0", "choose_trial_to_run")]
    effects = answer(run, "t0", chosen=chosen)
    if chosen:
        effects += answer(run, "t0", chosen=None)
    assert launched(effects) == resumed


def test_a_slow_scheduler_does_not_get_trials_without_end() -> None:
    run = Rehearsal(
        capacity={"CPU": 1.0}, policy=scheduler_of(Watcher()), scheduler="W", num_samples=-1
    )
    count = 0
    effects = run.began
    while any(isinstance(one, Suggest) for one in effects):
        count += 1
        effects = run.suggest()
    assert count == 16
    assert launched(answer(run, "t0")) == ["t0"]


@pytest.mark.parametrize(
    ("base", "methods", "message"),
    [
        (ASHAScheduler, ["on_trial_result"], "overrides on_trial_result of ASHAScheduler"),
        (HyperBandScheduler, ["_process_bracket"], "_process_bracket of HyperBandScheduler"),
        (
            PopulationBasedTraining,
            ["_exploit"],
            "_exploit of PopulationBasedTraining, which .*exp",
        ),
        (PB2, ["_quantiles", "on_trial_add"], "overrides on_trial_add, _quantiles of PB2"),
        (FIFOScheduler, ["decide", "on_trial_result"], "defines decide and on_trial_result"),
    ],
)
def test_methods_that_would_never_be_called_are_refused_by_name(
    base: type[TrialScheduler], methods: list[str], message: str
) -> None:
    users = type("Mine", (base,), dict.fromkeys(methods, lambda *given: None))
    given: dict[type, dict[str, Any]] = {
        PopulationBasedTraining: {"hyperparam_mutations": {"lr": [1, 2]}},
        PB2: {"hyperparam_bounds": {"lr": [1, 2]}},
    }
    with pytest.raises(InvalidConfig, match=f"Mine .*{message}"):
        scheduler_of(users(**given.get(base, {})))


def test_a_class_that_defines_neither_way_to_decide_is_refused() -> None:
    class Empty(TrialScheduler):
        pass

    with pytest.raises(InvalidConfig, match=r"Empty must define decide.*on_trial_result"):
        scheduler_of(Empty())


def test_methods_of_the_users_own_are_no_overrides() -> None:
    class Mine(ASHAScheduler):
        def _exploit(self) -> None:  # not one of ASHA's
            ...

        def debug_string(self) -> str:
            return "mine"

    mine = Mine()
    assert scheduler_of(mine) is mine


def test_what_cannot_call_it_refuses_it() -> None:
    with pytest.raises(InvalidConfig, match="cannot wrap Judge, whose on_trial_result"):
        ResourceChangingScheduler(Judge())
    with pytest.raises(InvalidConfig, match="Judge has methods that Ray calls"):
        simulate(lambda config, iteration: 1.0, tune_config=TuneConfig(scheduler=Judge()))


def test_a_scheduler_knows_its_goal_by_either_name() -> None:
    class Own(Judge):
        def __init__(self) -> None:
            self._metric, self._mode = "loss", "min"

    policy = scheduler_of(Own())
    assert isinstance(policy, RayStyleScheduler)
    assert (policy.metric, policy.mode, policy.name) == ("loss", "min", "Own")
