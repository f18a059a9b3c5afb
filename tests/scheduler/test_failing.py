"""Failures: retries and their budget, lost workers, and runs that end at the first error."""

from typing import Any

import pytest

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.effects import Effect, Finish, Halt, Launch, Preempt, Wait
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.scheduler.failing import wait_s
from holdfast.scheduler.machine import from_snapshot
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import ProcessFailureKind
from holdfast.trial.trial import Status
from tests.rig.scheduler.samples import trial_in


def of(trials: int, **failure: Any) -> Rehearsal:
    """This many trials that run at once, and no other."""
    run = Rehearsal(capacity={"CPU": trials}, failure=FailureConfig(**failure))
    for _ in range(trials):
        run.suggest()
    run.handle(SearchEnded())
    run.start(*run.machine.trials)
    return run


def launched(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def waits(effects: list[Effect]) -> list[float]:
    return [effect.seconds for effect in effects if isinstance(effect, Wait)]


def status(run: Rehearsal, trial_id: str = "t0") -> Status:
    return run.trial(trial_id).status


# -- whose budget ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lost", "memory", "hang"])
def test_a_worker_that_dies_counts_with_the_user_code_by_default(
    kind: ProcessFailureKind,
) -> None:
    run = of(1, max_failures=0)
    run.exits("t0", kind=kind)
    assert status(run) is Status.ERROR
    assert run.trial("t0").failures == 1


@pytest.mark.parametrize(
    ("budget", "kind", "count"),
    [
        ("max_lost_workers", "lost", "lost_workers"),
        ("max_lost_workers", "hang", "lost_workers"),
        ("max_out_of_memory", "memory", "out_of_memory"),
    ],
)
def test_a_budget_of_its_own_spares_max_failures(
    budget: str, kind: ProcessFailureKind, count: str
) -> None:
    run = of(1, max_failures=1, **{budget: 1})
    assert launched(run.exits("t0", kind=kind)) == ["t0"]
    assert (run.trial("t0").failures, getattr(run.trial("t0"), count)) == (0, 1)
    run.start("t0")
    run.fails("t0")
    assert launched(run.exits("t0")) == ["t0"]
    run.start("t0")
    run.exits("t0", kind=kind)
    assert status(run) is Status.ERROR
    assert (run.trial("t0").failures, getattr(run.trial("t0"), count)) == (1, 2)


def test_user_code_that_fails_has_no_use_of_the_other_budgets() -> None:
    run = of(1, max_failures=0, max_lost_workers=-1, max_out_of_memory=-1)
    run.fails("t0")
    assert status(run) is Status.ERROR


def test_preemptions_are_no_failures_by_default() -> None:
    run = of(1, max_failures=0)
    for _ in range(20):
        run.fails("t0", kind="preempted")
        assert launched(run.exits("t0")) == ["t0"]
        run.start("t0")
    assert (run.trial("t0").failures, run.trial("t0").preemptions) == (0, 20)


def test_preemptions_can_be_limited() -> None:
    run = of(1, max_failures=5, max_preemptions=1)
    run.fails("t0", kind="preempted")
    run.exits("t0")
    run.start("t0")
    run.fails("t0", kind="preempted")
    assert status(run) is Status.ERROR


def test_the_kind_of_a_death_is_in_the_error() -> None:
    run = of(1, max_failures=0)
    run.exits("t0", "was killed", kind="memory")
    error = run.trial("t0").error
    assert error is not None
    assert (error.kind, error.type_name) == ("memory", "OutOfMemory")


def test_progress_gives_the_budgets_back_if_asked() -> None:
    run = of(1, max_failures=1, max_lost_workers=1, reset_on_progress=True)
    for _ in range(5):
        run.report("t0", checkpoint=True)
        assert run.trial("t0").setbacks == 0
        run.fails("t0")
        run.exits("t0")
        run.start("t0")
        run.exits("t0")
        run.start("t0")
    run.fails("t0")
    assert status(run) is Status.ERROR


def test_a_report_without_a_checkpoint_is_not_a_progress_that_lasts() -> None:
    run = of(1, max_failures=1, reset_on_progress=True)
    run.report("t0")
    run.fails("t0")
    run.exits("t0")
    run.start("t0")
    run.report("t0")
    run.fails("t0")
    assert status(run) is Status.ERROR


# -- waiting --------------------------------------------------------------------------------------


def test_a_retry_starts_only_when_its_wait_is_over() -> None:
    run = of(1, max_failures=1, retry_wait_s=8.0)
    (wait,) = [effect for effect in run.fails("t0") if isinstance(effect, Wait)]
    assert wait.attempt == 1
    assert 4.0 <= wait.seconds <= 8.0
    assert run.exits("t0") == []
    assert launched(run.waited("t0")) == ["t0"]


def test_what_waits_leaves_its_place_to_others() -> None:
    run = Rehearsal(capacity={"CPU": 1}, failure=FailureConfig(max_failures=1, retry_wait_s=8.0))
    run.suggest()
    run.start("t0")
    run.fails("t0")
    run.exits("t0")
    assert launched(run.suggest()) == ["t1"]
    assert run.waited("t0") == []
    assert launched(run.exits("t1", kind="memory")) == ["t0"]


def test_waits_grow_up_to_a_limit_and_differ_from_trial_to_trial() -> None:
    config = FailureConfig(max_failures=-1, retry_wait_s=1.0, longest_retry_wait_s=10.0)
    run = of(2, max_failures=-1, retry_wait_s=1.0, longest_retry_wait_s=10.0)
    told: dict[str, list[float]] = {"t0": [], "t1": []}
    for trial_id, seconds in told.items():
        for _ in range(6):
            seconds += waits(run.fails(trial_id))
            run.exits(trial_id)
            run.waited(trial_id)
            run.start(trial_id)
    for bound, first, second in zip((1, 2, 4, 8, 10, 10), *told.values(), strict=True):
        assert bound / 2 <= first <= bound
        assert bound / 2 <= second <= bound
        assert first != second
    assert wait_s(run.trial("t0"), config, seed=1) != wait_s(run.trial("t0"), config, seed=2)


def test_a_thousand_failures_wait_no_longer_than_the_limit() -> None:
    config = FailureConfig(max_failures=-1, retry_wait_s=1.0, longest_retry_wait_s=10.0)
    run = of(1, max_failures=-1)
    for _ in range(1100):
        run.fails("t0")
        run.exits("t0")
        run.start("t0")
    assert wait_s(run.trial("t0"), config, seed=0) <= 10.0
    assert wait_s(trial_in(Status.PENDING), FailureConfig(), seed=0) == 0.0


def test_a_lost_checkpoint_is_waited_for_by_no_one() -> None:
    run = of(1, max_failures=0, retry_wait_s=8.0)
    assert waits(run.fails("t0", kind="checkpoint")) == []
    assert launched(run.exits("t0")) == ["t0"]


def test_a_wait_survives_a_snapshot() -> None:
    run = of(1, max_failures=1, retry_wait_s=8.0)
    run.fails("t0")
    run.machine = from_snapshot(snapshot(run.machine))
    assert run.exits("t0") == []
    assert launched(run.waited("t0")) == ["t0"]


def test_a_budget_that_ends_ends_what_waits() -> None:
    run = of(1, max_failures=1, retry_wait_s=8.0)
    run.fails("t0")
    run.exits("t0")
    (finish,) = run.handle(EndOrdered(reason="budget"))
    assert isinstance(finish, Finish)
    assert status(run) is Status.TERMINATED
    assert run.waited("t0") == []


def test_a_wait_of_an_earlier_attempt_says_nothing() -> None:
    run = of(1, max_failures=2, retry_wait_s=8.0)
    run.fails("t0")
    run.exits("t0")
    run.waited("t0")
    run.start("t0")
    run.fails("t0")
    run.exits("t0")
    assert run.waited("t0", attempt=1) == []
    assert launched(run.waited("t0")) == ["t0"]


# -- too many errors ------------------------------------------------------------------------------


def test_the_run_ends_when_more_trials_have_errored_than_may() -> None:
    run = of(3, max_errored_trials=1)
    run.fails("t0")
    run.exits("t0")
    (halt,) = [effect for effect in run.fails("t1") if isinstance(effect, Halt)]
    assert halt.trial_id == "t2"
    run.exits("t1")
    (finish,) = run.exits("t2")
    assert isinstance(finish, Finish)
    assert finish.reason == "errored"
    assert "max_errored_trials=1" in finish.message
    assert "t1" in finish.message
    assert status(run, "t2") is Status.PENDING


def test_after_a_restore_errors_are_counted_again() -> None:
    run = of(3, max_errored_trials=1)
    for trial_id in ("t0", "t1"):
        run.fails(trial_id)
        run.exits(trial_id)
    run.exits("t2")
    run.crash()
    assert launched(run.resume()) == ["t2"]
    run.start("t2")
    run.machine = from_snapshot(snapshot(run.machine))
    run.fails("t2")
    assert run.exits("t2") == [Finish(reason="done")]


# -- the whole run is preempted -------------------------------------------------------------------


def test_a_preempted_run_gives_its_trials_time_to_save() -> None:
    run = of(2)
    effects = run.handle(EndOrdered(reason="preempted"))
    why = "the script got a SIGTERM"
    assert effects == [Preempt(trial_id=name, attempt=1, why=why) for name in ("t0", "t1")]
    run.report("t0", checkpoint=True)
    run.fails("t0", kind="preempted")
    run.exits("t0")
    run.exits("t1", kind="lost")
    assert run.machine.finished
    assert [status(run, name) for name in ("t0", "t1")] == [Status.PENDING, Status.PENDING]
    assert [run.trial(name).setbacks for name in ("t0", "t1")] == [0, 0]
    run.crash()
    (first, _) = [effect for effect in run.resume() if isinstance(effect, Launch)]
    assert first.checkpoint is not None
    assert first.checkpoint.iteration == 1


def test_an_error_while_the_run_is_preempted_is_not_an_error_of_the_trial() -> None:
    """Programs that it started, such as data loaders, end with the job."""
    run = of(1)
    run.handle(EndOrdered(reason="preempted"))
    run.fails("t0")
    assert status(run) is Status.PENDING


def test_what_has_not_started_yet_has_nothing_to_save() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    (halt,) = run.handle(EndOrdered(reason="preempted"))
    assert isinstance(halt, Halt)
    run.exits("t0")
    assert status(run) is Status.PENDING
    assert run.machine.finished


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


def test_minus_one_means_without_end() -> None:
    run = of_one(-1)
    for attempt in range(2, 30):
        run.fails("t0")
        assert attempts(run.exits("t0")) == [attempt]
        run.start("t0")


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
