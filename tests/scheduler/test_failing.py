"""Failures: retries and their budget, lost workers, and runs that end at the first error."""

from typing import Any

import pytest

from holdfast.scheduler.effects import Effect, Finish, Halt, Launch, Suggest
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status


def of_one(max_failures: int = 0, **spec: Any) -> Rehearsal:
    """One trial that runs, and no other."""
    failure = FailureConfig(max_failures=max_failures)
    run = Rehearsal(capacity={"CPU": 1}, failure=failure, **spec)
    run.suggest()
    run.handle(SearchEnded())
    run.start("t0")
    return run


def attempts(effects: list[Effect]) -> list[int]:
    return [effect.attempt for effect in effects if isinstance(effect, Launch)]


def test_without_retries_a_failure_is_an_error() -> None:
    run = of_one(0)
    assert run.fails("t0") == []
    assert run.exits("t0") == [Finish(reason="done")]
    trial = run.trial("t0")
    assert trial.status is Status.ERROR
    assert trial.error is not None
    assert trial.error.headline == "ValueError: oh no"
    assert trial.failures == 1


def test_a_trial_is_retried_as_often_as_it_may_be() -> None:
    run = of_one(2)
    for attempt in (2, 3):
        assert run.fails("t0") == []
        assert attempts(run.exits("t0")) == [attempt]
        assert run.trial("t0").error is None
        run.start("t0")
    run.fails("t0")
    assert run.exits("t0") == [Finish(reason="done")]
    assert run.trial("t0").status is Status.ERROR
    assert run.trial("t0").failures == 3


def test_minus_one_means_without_end() -> None:
    run = of_one(-1)
    for attempt in range(2, 30):
        run.fails("t0")
        assert attempts(run.exits("t0")) == [attempt]
        run.start("t0")


def test_a_retry_waits_until_the_failed_worker_is_gone() -> None:
    run = of_one(1)
    assert run.fails("t0") == []
    assert run.trial("t0").status is Status.PENDING
    assert attempts(run.exits("t0")) == [2]


def test_a_retry_resumes_from_the_newest_checkpoint() -> None:
    run = of_one(1)
    run.report("t0", checkpoint=True)
    run.report("t0", checkpoint=True)
    run.report("t0")
    run.fails("t0")
    (launch,) = run.exits("t0")
    assert isinstance(launch, Launch)
    assert launch.checkpoint is not None
    assert launch.checkpoint.index == 1
    trial = run.trial("t0")
    assert (trial.iteration, trial.resumed_from, trial.time_total_s) == (2, 2, 1.0)


def test_a_retry_without_a_checkpoint_begins_again() -> None:
    run = of_one(1)
    run.report("t0")
    run.fails("t0")
    (launch,) = run.exits("t0")
    assert isinstance(launch, Launch)
    assert launch.checkpoint is None
    assert (run.trial("t0").iteration, run.trial("t0").time_total_s) == (0, 0.0)


def test_a_retry_waits_behind_those_that_wait_already() -> None:
    run = Rehearsal(capacity={"CPU": 1}, resources=None, failure=FailureConfig(max_failures=1))
    run.suggest()
    run.suggest()
    run.start("t0")
    run.fails("t0")
    launch = run.exits("t0")[0]
    assert isinstance(launch, Launch)
    assert launch.trial_id == "t1"
    assert list(run.machine.placement.queue) == ["t0"]


def test_a_trial_that_cannot_even_start_fails_too() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.fails("t0", kind="setup")
    assert run.trial("t0").status is Status.ERROR


def test_a_lost_worker_is_a_failure_that_names_the_process_and_the_cause() -> None:
    run = of_one(0)
    assert run.exits("t0", "was killed by signal 9 (SIGKILL)") == [Finish(reason="done")]
    error = run.trial("t0").error
    assert error is not None
    assert error.kind == "lost"
    assert error.message == "the worker process 1000 was killed by signal 9 (SIGKILL)"
    assert (error.pid, error.hostname) == (1000, "host")


def test_a_worker_that_is_lost_before_it_is_up_has_no_process_to_name() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.exits("t0", "could not be started: no memory")
    error = run.trial("t0").error
    assert error is not None
    assert error.message == "the worker process could not be started: no memory"
    assert error.pid is None


def test_a_lost_worker_counts_against_the_same_budget() -> None:
    run = of_one(1)
    assert attempts(run.exits("t0", "was killed")) == [2]
    run.start("t0")
    run.fails("t0")
    assert run.trial("t0").status is Status.ERROR


def test_a_worker_that_exits_after_it_failed_is_not_counted_twice() -> None:
    run = of_one(5)
    run.fails("t0")
    run.exits("t0", "exited with status 1")
    assert run.trial("t0").failures == 1


def test_a_checkpoint_that_could_not_be_read_is_not_a_failure_of_the_trial() -> None:
    run = of_one(0)
    run.report("t0", checkpoint=True)
    run.crash()
    run.resume()
    run.fails("t0", kind="checkpoint")
    assert attempts(run.exits("t0", "never started")) == [3]
    assert run.trial("t0").failures == 0


def two_running(fail_fast: bool | str) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": 2}, failure=FailureConfig(fail_fast=fail_fast))
    run.suggest()
    run.suggest()
    run.start("t0", "t1")
    return run


@pytest.mark.parametrize("fail_fast", [True, "raise"])
def test_fail_fast_stops_the_others_at_the_first_error(fail_fast: bool | str) -> None:
    run = two_running(fail_fast)
    assert run.fails("t0") == [Halt(trial_id="t1", attempt=1)]
    assert run.exits("t0") == []
    run.returns("t1")
    (finish,) = run.exits("t1")
    assert isinstance(finish, Finish)
    assert finish.reason == "fail_fast"
    assert "t0" in finish.message
    assert "ValueError: oh no" in finish.message
    assert run.trial("t1").status is Status.PENDING


def test_what_fail_fast_has_stopped_resumes_after_a_restore() -> None:
    run = two_running(fail_fast=True)
    run.report("t1", checkpoint=True)
    run.fails("t0")
    run.exits("t0")
    run.exits("t1")
    run.crash()
    effects = run.resume(errored="resume")
    assert sorted(e.trial_id for e in effects if isinstance(e, Launch)) == ["t0", "t1"]
    assert run.trial("t1").resumed_from == 1


def test_the_first_failure_is_the_one_that_is_reported() -> None:
    run = Rehearsal(capacity={"CPU": 3}, failure=FailureConfig(fail_fast=True))
    for _ in range(3):
        run.suggest()
    run.start("t0", "t1", "t2")
    run.fails("t0")
    run.fails("t1")
    run.exits("t0")
    run.exits("t1")
    (finish,) = run.exits("t2")
    assert isinstance(finish, Finish)
    assert "trial t0 failed" in finish.message


def test_without_fail_fast_the_others_continue() -> None:
    run = two_running(False)
    assert run.fails("t0") == []
    assert run.exits("t0") == [Suggest(index=2)]
    assert run.trial("t1").status is Status.RUNNING


def test_an_error_while_a_trial_unwinds_changes_nothing_about_its_end() -> None:
    run = of_one(0, stop={"training_iteration": 1})
    run.report("t0")
    assert run.trial("t0").status is Status.STOPPING
    run.fails("t0")
    assert run.trial("t0").status is Status.TERMINATED
    assert run.trial("t0").error is None


def test_a_worker_that_dies_while_it_is_asked_to_stop_has_ended() -> None:
    run = of_one(0, stop={"training_iteration": 1})
    run.report("t0")
    assert run.exits("t0", "was killed by signal 9 (SIGKILL)") == [Finish(reason="done")]
    assert run.trial("t0").status is Status.TERMINATED


def test_ctrl_c_between_a_failure_and_the_workers_exit_leaves_the_retry_for_a_restore() -> None:
    run = of_one(1)
    run.fails("t0")
    assert run.handle(EndOrdered(reason="interrupt")) == []
    assert run.exits("t0") == [Finish(reason="interrupt")]
    assert run.trial("t0").status is Status.PENDING
