"""reuse_actors: a worker that is done serves the next trial."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.scheduler.effects import Effect, Finish, Launch, Release, Suggest
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.scheduler.policy import (
    ChangeTrial,
    Decision,
    Observation,
    PauseTrial,
    StopTrial,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    View,
)
from holdfast.testing.rehearsal import Rehearsal, failure
from holdfast.trial.config import FailureConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Status


def running(count: int = 1, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, reuse_actors=True, resources=None, **spec)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def reused(effects: list[Effect]) -> dict[str, str | None]:
    return {effect.trial_id: effect.reuse for effect in effects if isinstance(effect, Launch)}


def test_an_idle_worker_serves_the_next_trial() -> None:
    run = running()
    assert run.returns("t0") == []
    assert reused(run.suggest()) == {"t1": "t0"}
    assert run.machine.placement.idle == {}
    assert run.machine.placement.capacity.free == {"CPU": 0}


def test_a_waiting_trial_takes_an_idle_worker_at_once() -> None:
    run = running()
    run.suggest()
    assert reused(run.returns("t0")) == {"t1": "t0"}


def test_a_failed_worker_is_not_reused() -> None:
    run = running(failure=FailureConfig(max_failures=1))
    run.fails("t0")
    assert reused(run.suggest()) == {}
    assert reused(run.exits("t0")) == {"t1": None}


def test_a_worker_with_other_resources_is_released_first() -> None:
    run = running(2)
    run.returns("t0")
    run.returns("t1")
    assert run.suggest({"CPU": 2}) == [
        Release(trial_id="t0", attempt=1),
        Release(trial_id="t1", attempt=1),
    ]
    assert run.exits("t0") == []
    assert reused(run.exits("t1")) == {"t2": None}


class Told(TrialScheduler):
    """Does what the row says under "stop", "pause" and "unpause"."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported):
            return ()
        return [KINDS[key](trial_id=event.row[key]) for key in event.row if key in KINDS]


KINDS: dict[str, Callable[..., Decision]] = {
    "stop": StopTrial,
    "pause": PauseTrial,
    "unpause": UnpauseTrial,
}


def test_a_worker_that_was_released_is_given_to_no_one() -> None:
    run = running(2, policy=Told())
    run.returns("t0")
    assert run.suggest({"CPU": 2}) == [Release(trial_id="t0", attempt=1)]
    run.report("t1", {"stop": "t2"})
    assert run.trial("t2").status is Status.TERMINATED
    assert run.suggest() == []
    assert reused(run.exits("t0")) == {"t3": None}


def test_a_trial_waits_for_its_own_worker_that_was_released() -> None:
    run = Rehearsal(
        capacity={"CPU": 3},
        policy=Told(),
        reuse_actors=True,
        resources=None,
        has_stopper=True,
        failure=FailureConfig(max_failures=1),
    )
    for trial_id in ("t0", "t1"):
        run.suggest()
        run.start(trial_id)
    run.suggest({"CPU": 3})
    run.report("t0")
    run.answer("t0", failed=failure("stopper"))
    assert run.returns("t0") == [Release(trial_id="t0", attempt=1)]
    run.report("t1", {"stop": "t2"})
    assert reused(run.answer("t1")) == {}
    assert reused(run.exits("t0")) == {"t0": None}


def test_a_trial_takes_its_own_idle_worker_before_that_of_another() -> None:
    run = running(3, policy=Told())
    run.returns("t1")
    run.report("t0", {"pause": "t0"}, checkpoint=True)
    run.returns("t0")
    assert list(run.machine.placement.idle) == ["t1", "t0"]
    assert reused(run.report("t2", {"unpause": "t0"})) == {"t0": "t0"}


def test_idle_workers_are_released_at_the_end() -> None:
    run = running()
    run.returns("t0")
    assert run.handle(SearchEnded()) == [Release(trial_id="t0", attempt=1)]
    assert run.exits("t0") == [Finish(reason="done")]


def test_idle_workers_are_released_when_the_run_is_interrupted() -> None:
    run = running()
    run.returns("t0")
    assert run.handle(EndOrdered(reason="interrupt")) == [Release(trial_id="t0", attempt=1)]
    assert run.exits("t0") == [Finish(reason="interrupt")]


def test_an_idle_worker_that_dies_leaves_its_resources() -> None:
    run = running()
    run.returns("t0")
    assert run.exits("t0", "was killed") == []
    assert run.trial("t0").status is Status.TERMINATED
    assert run.machine.placement.capacity.free == {"CPU": 1}
    assert reused(run.suggest()) == {"t1": None}


def test_a_trial_that_will_be_retried_waits_for_no_exit() -> None:
    run = running(has_stopper=True, failure=FailureConfig(max_failures=1))
    run.report("t0")
    run.answer("t0", failed=failure("stopper"))
    assert reused(run.returns("t0")) == {"t0": "t0"}
    assert run.trial("t0").attempt == 2


def test_what_an_older_attempt_says_does_not_make_its_worker_idle() -> None:
    run = running(has_stopper=True, failure=FailureConfig(max_failures=1))
    run.report("t0")
    run.answer("t0", failed=failure("stopper"))
    run.returns("t0")
    assert run.returns("t0", attempt=1) == []
    assert list(run.machine.placement.holds) == ["t0"]
    assert run.machine.placement.idle == {}


def test_a_reused_worker_is_not_a_second_one_for_max_concurrent() -> None:
    run = Rehearsal(capacity={"CPU": 4}, reuse_actors=True, max_concurrent=1)
    run.suggest()
    run.start("t0")
    assert run.returns("t0") == [Suggest(index=1)]
    assert reused(run.suggest()) == {"t1": "t0"}


def test_a_trial_that_is_changed_does_not_continue_with_what_its_idle_worker_holds() -> None:
    class Growing(TrialScheduler):
        def decide(self, view: View, event: Observation) -> Sequence[Decision]:
            twice = PlacementGroupFactory([{"CPU": 2}])
            is_due = isinstance(event, TrialReported) and event.row["training_iteration"] == 1
            return [ChangeTrial(trial_id="t0", resources=twice)] if is_due else ()

    run = Rehearsal(capacity={"CPU": 2}, reuse_actors=True, policy=Growing(), scheduler="Growing")
    run.suggest()
    run.start("t0")
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    assert run.returns("t0") == [Release(trial_id="t0", attempt=1)]
    (launch,) = [effect for effect in run.exits("t0") if isinstance(effect, Launch)]
    assert (launch.trial_id, launch.reuse, launch.allocation.amounts) == ("t0", None, {"CPU": 2})
