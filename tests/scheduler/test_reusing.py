"""reuse_actors: a worker that is done serves the next trial."""

from typing import Any

from holdfast.scheduler.effects import Finish, Release
from holdfast.scheduler.events import EndOrdered
from holdfast.testing.rehearsal import Rehearsal, failure
from holdfast.trial.config import FailureConfig


def running(count: int = 1, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, reuse_actors=True, resources=None, **spec)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def test_idle_workers_are_released_when_the_run_is_interrupted() -> None:
    run = running()
    run.returns("t0")
    assert run.handle(EndOrdered(reason="interrupt")) == [Release(trial_id="t0", attempt=1)]
    assert run.exits("t0") == [Finish(reason="interrupt")]


def test_what_an_older_attempt_says_does_not_make_its_worker_idle() -> None:
    run = running(has_stopper=True, failure=FailureConfig(max_failures=1))
    run.report("t0")
    run.answer("t0", failed=failure("stopper"))
    run.returns("t0")
    assert run.returns("t0", attempt=1) == []
    assert list(run.machine.placement.holds) == ["t0"]
    assert run.machine.placement.idle == {}
