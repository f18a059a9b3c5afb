"""How trials and runs are stopped: bounds, stop functions, budgets, Ctrl-C."""

from typing import Any

import pytest

from holdfast.scheduler.effects import AskStopper, Commit, Finish, Halt, Reply, Suggest, Verdict
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.testing.rehearsal import Rehearsal, failure
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.trial import Status


def running(count: int = 1, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, **spec)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def reply(verdict: Verdict, trial_id: str = "t0") -> Reply:
    return Reply(trial_id=trial_id, attempt=1, verdict=verdict)


BOUNDS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"accuracy": 0.9}, {"accuracy": 0.9}, True),
    ({"accuracy": 0.9}, {"accuracy": 0.89}, False),
    ({"accuracy": 0.9}, {}, False),
    ({"accuracy": 0.9}, {"accuracy": None}, False),
    ({"accuracy": 0.9}, {"accuracy": "high"}, False),
    ({"accuracy": 0.9}, {"accuracy": float("nan")}, False),
    ({"eval/accuracy": 0.9}, {"eval": {"accuracy": 1}}, True),
    ({"converged": True}, {"converged": True}, True),
    ({"converged": True}, {"converged": False}, False),
    ({"loss": 5, "accuracy": 0.9}, {"loss": 1, "accuracy": 0.95}, True),
    ({"training_iteration": 1}, {}, True),
    ({"training_iteration": 2}, {}, False),
    ({"time_total_s": 0.5}, {}, True),
    ({"iterations_since_restore": 1}, {}, True),
    ({"time_since_restore": 0.6}, {}, False),
]


@pytest.mark.parametrize(("stop", "metrics", "stops"), BOUNDS)
def test_a_bound_that_is_reached_is_the_answer_to_the_report(
    stop: dict[str, Any], metrics: dict[str, Any], stops: bool
) -> None:
    run = running(stop=stop)
    verdict = Verdict.STOP if stops else Verdict.CONTINUE
    assert run.report("t0", metrics) == [reply(verdict)]
    assert run.trial("t0").status is (Status.STOPPING if stops else Status.RUNNING)


def test_a_users_metric_wins_over_a_count_of_holdfast_as_it_does_in_the_files() -> None:
    run = running(stop={"time_total_s": 100})
    assert run.report("t0", {"time_total_s": 101}) == [reply(Verdict.STOP)]


def test_the_iteration_is_ours_whatever_was_reported() -> None:
    run = running(stop={"training_iteration": 5})
    assert run.report("t0", {"training_iteration": 9})[-1] == reply(Verdict.CONTINUE)


def test_a_trial_that_reports_done_is_done() -> None:
    assert running().report("t0", {"done": True}) == [reply(Verdict.STOP)]
    assert running().report("t0", {"done": "yes"}) == [reply(Verdict.CONTINUE)]


def test_a_trial_that_continues_to_report_is_reported_again() -> None:
    run = running(stop={"training_iteration": 1})
    run.report("t0")
    assert run.report("t0") == [reply(Verdict.STOP)]
    assert run.trial("t0").iteration == 2


def test_a_stopped_trial_ends_when_it_returns() -> None:
    run = running(stop={"training_iteration": 1})
    run.report("t0")
    run.returns("t0")
    assert run.trial("t0").status is Status.TERMINATED
    assert run.exits("t0") == [Suggest(index=1)]


# -- the user's stop function -------------------------------------------------------------------


def test_a_report_is_answered_once_the_stop_function_has_seen_it() -> None:
    run = running(has_stopper=True)
    assert run.report("t0") == [AskStopper(trial_id="t0", attempt=1, iteration=1)]
    assert run.answer("t0") == [reply(Verdict.CONTINUE)]
    run.report("t0")
    assert run.answer("t0", stop=True) == [reply(Verdict.STOP)]


def test_bounds_count_in_addition_to_a_stop_function() -> None:
    run = running(has_stopper=True, stop={"training_iteration": 1})
    run.report("t0")
    assert run.answer("t0") == [reply(Verdict.STOP)]


def test_a_stop_function_may_end_the_whole_run() -> None:
    run = running(2, has_stopper=True)
    run.report("t0")
    effects = run.answer("t0", stop_all=True)
    assert effects == [
        Halt(trial_id="t0", attempt=1),
        Halt(trial_id="t1", attempt=1),
        reply(Verdict.STOP),
    ]
    run.ends("t0")
    (finish,) = run.ends("t1")
    assert isinstance(finish, Finish)
    assert finish.reason == "stopper"


def test_an_error_in_the_stop_function_fails_the_trial_that_reported() -> None:
    run = running(has_stopper=True)
    run.report("t0")
    assert run.answer("t0", failed=failure("stopper")) == [reply(Verdict.STOP)]
    assert run.trial("t0").status is Status.ERROR
    assert run.trial("t0").error == failure("stopper")


def test_an_error_in_the_stop_function_of_a_trial_that_is_stopping_changes_nothing() -> None:
    run = running(2, has_stopper=True)
    run.report("t0")
    run.report("t1")
    run.answer("t0", stop_all=True)
    assert run.trial("t1").status is Status.STOPPING
    assert run.answer("t1", failed=failure("stopper"))[-1] == reply(Verdict.STOP, "t1")
    assert run.trial("t1").status is Status.TERMINATED


def test_a_trial_whose_stop_function_failed_is_retried() -> None:
    run = running(has_stopper=True, failure=FailureConfig(max_failures=1))
    run.report("t0")
    run.answer("t0", failed=failure("stopper"))
    run.returns("t0")
    run.exits("t0")
    assert run.trial("t0").status is Status.STARTING
    assert run.trial("t0").attempt == 2


def test_an_answer_about_a_worker_that_is_gone_is_dropped() -> None:
    run = running(has_stopper=True)
    run.report("t0")
    run.exits("t0", "was killed")
    assert run.answer("t0", stop_all=True) == []
    assert run.machine.ending is None


# -- the end of the run -------------------------------------------------------------------------


def test_a_spent_budget_ends_trials_well() -> None:
    run = running(2)
    order = EndOrdered(reason="budget", message="spent")
    assert run.handle(order) == [Halt(trial_id="t0", attempt=1), Halt(trial_id="t1", attempt=1)]
    run.returns("t0")
    run.exits("t0")
    assert run.ends("t1") == [Finish(reason="budget", message="spent")]
    assert {trial.status for trial in run.machine.trials.values()} == {Status.TERMINATED}


def test_a_spent_budget_ends_a_trial_that_waits_for_its_retry() -> None:
    run = running(failure=FailureConfig(max_failures=1), resources=None)
    run.suggest()
    run.fails("t0")
    run.exits("t0")
    assert list(run.machine.placement.queue) == ["t0"]
    run.handle(EndOrdered(reason="budget"))
    assert run.trial("t0").status is Status.TERMINATED
    run.exits("t1")
    assert run.machine.finished


def test_what_never_began_is_left_for_a_restore_with_a_larger_budget() -> None:
    run = running(resources=None)
    run.suggest()
    run.handle(EndOrdered(reason="budget"))
    assert run.trial("t1").status is Status.PENDING


def test_nothing_new_starts_once_the_end_is_ordered() -> None:
    run = running()
    run.ends("t0")
    assert run.handle(EndOrdered(reason="budget")) == [Finish(reason="budget")]
    assert run.suggest() == []
    assert run.trial("t1").status is Status.PENDING


def test_an_interrupt_leaves_trials_to_be_resumed() -> None:
    run = running()
    run.report("t0", checkpoint=True)
    assert run.handle(EndOrdered(reason="interrupt", message="Ctrl-C")) == [
        Halt(trial_id="t0", attempt=1)
    ]
    assert run.returns("t0") == []
    assert run.exits("t0") == [Finish(reason="interrupt", message="Ctrl-C")]
    assert run.trial("t0").status is Status.PENDING


def test_a_report_that_crosses_an_interrupt_is_neither_kept_nor_answered() -> None:
    run = running()
    run.handle(EndOrdered(reason="interrupt"))
    assert run.report("t0") == []
    assert run.trial("t0").iteration == 0


def test_an_interrupt_stops_what_was_starting() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    assert run.handle(EndOrdered(reason="interrupt")) == [Halt(trial_id="t0", attempt=1)]
    assert run.start("t0") == []
    assert run.exits("t0") == [Finish(reason="interrupt")]


def test_an_interrupt_does_not_take_back_a_stop_that_was_decided() -> None:
    run = running(stop={"training_iteration": 1})
    run.report("t0")
    assert run.handle(EndOrdered(reason="interrupt")) == []
    assert run.trial("t0").status is Status.STOPPING
    run.save("t0")
    run.returns("t0")
    run.exits("t0")
    assert run.trial("t0").status is Status.TERMINATED
    assert len(run.trial("t0").checkpoints) == 1


def test_an_interrupt_may_follow_a_budget_but_not_the_other_way_round() -> None:
    run = running()
    run.handle(EndOrdered(reason="budget"))
    run.handle(EndOrdered(reason="interrupt"))
    run.handle(EndOrdered(reason="budget"))
    assert run.exits("t0") == [Finish(reason="interrupt")]


def test_a_checkpoint_made_while_stopping_is_committed() -> None:
    run = running(stop={"training_iteration": 1})
    run.report("t0")
    (commit,) = run.save("t0")
    assert isinstance(commit, Commit)
    assert commit.checkpoint.iteration == 1


def test_a_worker_that_is_to_save_at_its_end_is_halted_after_its_step() -> None:
    run = running(checkpoint=CheckpointConfig(checkpoint_at_end=True))
    run.report("t0")
    halt = Halt(trial_id="t0", attempt=1, after_step=True)
    assert run.handle(EndOrdered(reason="budget")) == [halt]
    assert run.report("t0") == [reply(Verdict.STOP)]
    (commit,) = run.save("t0")
    assert isinstance(commit, Commit)
    assert commit.checkpoint.iteration == 2
    run.handle(SearchEnded())
    assert run.ends("t0") == [Finish(reason="budget")]


def test_an_interrupt_waits_for_no_step() -> None:
    run = running(checkpoint=CheckpointConfig(checkpoint_at_end=True))
    assert run.handle(EndOrdered(reason="interrupt")) == [Halt(trial_id="t0", attempt=1)]


def test_a_stop_that_comes_while_a_worker_starts_reaches_it() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    assert run.handle(EndOrdered(reason="budget")) == [Halt(trial_id="t0", attempt=1)]
    assert run.start("t0") == []
    assert run.trial("t0").status is Status.STOPPING
    run.handle(SearchEnded())
    assert run.ends("t0") == [Finish(reason="budget")]
