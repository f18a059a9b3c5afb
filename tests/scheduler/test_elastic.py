"""A trial that can run with fewer workers: as many as available, one fewer after a loss, more
later."""

from __future__ import annotations

from holdfast.scheduler.effects import Effect, Launch, Reply, Verdict
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Status

ABSENCE_S = 30


def workers(least: int, most: int) -> PlacementGroupFactory:
    return PlacementGroupFactory([{}, *[{"CPU": 1}] * most], least_bundles=1 + least)


def begun(cpus: int, **failure: float) -> Rehearsal:
    usual = {"lost_worker_absence_s": ABSENCE_S, **failure}
    config = FailureConfig(**usual)  # type: ignore[arg-type]
    return Rehearsal(capacity={"CPU": cpus}, failure=config, resources=workers(1, 4))


def launched(effects: list[Effect]) -> Launch:
    (launch,) = [effect for effect in effects if isinstance(effect, Launch)]
    return launch


def cpus(rehearsal: Rehearsal) -> float:
    return rehearsal.machine.placement.holds["t0"].amounts.get("CPU", 0)


def test_it_continues_with_one_less_when_one_is_lost_and_nothing_is_counted() -> None:
    rehearsal = begun(4)
    rehearsal.suggest(workers(1, 4))
    rehearsal.start("t0")
    rehearsal.report("t0", checkpoint=True)
    rehearsal.fails("t0", kind="lost")
    again = launched(rehearsal.exits("t0"))
    assert (again.attempt, again.checkpoint is not None, cpus(rehearsal)) == (2, True, 3)
    assert rehearsal.trial("t0").setbacks == 0
    rehearsal.crash()
    assert cpus(rehearsal) == 3


def test_the_loss_of_the_last_that_must_be_there_is_a_failure() -> None:
    rehearsal = begun(4)
    rehearsal.suggest(workers(4, 4))
    rehearsal.start("t0")
    rehearsal.fails("t0", kind="lost")
    assert rehearsal.trial("t0").status is Status.ERROR


def test_it_grows_with_a_checkpoint_once_the_lost_one_may_be_back() -> None:
    rehearsal = begun(4)
    rehearsal.suggest(workers(1, 4))
    rehearsal.start("t0")
    rehearsal.fails("t0", kind="lost")
    rehearsal.exits("t0")
    rehearsal.start("t0")
    assert Reply(trial_id="t0", attempt=2, verdict=Verdict.CONTINUE) in rehearsal.report(
        "t0", checkpoint=True
    )
    rehearsal.now += ABSENCE_S
    # Another experiment may hold the resources that are free here.
    assert Reply(trial_id="t0", attempt=2, verdict=Verdict.CONTINUE) in rehearsal.report(
        "t0", checkpoint=True
    )
    # Without a checkpoint, work would be lost.
    assert Reply(trial_id="t0", attempt=2, verdict=Verdict.CONTINUE) in rehearsal.report("t0")
    assert Reply(trial_id="t0", attempt=2, verdict=Verdict.STOP) in rehearsal.report(
        "t0", checkpoint=True, has_room=True
    )
    again = launched(rehearsal.exits("t0"))
    assert (again.attempt, cpus(rehearsal), rehearsal.trial("t0").setbacks) == (3, 4, 0)
    assert again.checkpoint is not None
    assert again.checkpoint.iteration == 4


def test_what_was_lost_goes_to_a_trial_that_waits_for_it_and_it_grows_when_that_is_free() -> None:
    rehearsal = begun(3)
    rehearsal.suggest(workers(1, 4))
    rehearsal.suggest({"CPU": 1})
    rehearsal.start("t0")
    rehearsal.fails("t0", kind="lost")
    rehearsal.exits("t0")
    # The other one has the place now.
    assert rehearsal.machine.placement.holds["t1"].amounts == {"CPU": 1}
    rehearsal.start("t0")
    rehearsal.now += ABSENCE_S
    assert Reply(trial_id="t0", attempt=2, verdict=Verdict.CONTINUE) in rehearsal.report(
        "t0", checkpoint=True, has_room=True
    )
    rehearsal.start("t1")
    rehearsal.ends("t1")
    assert Reply(trial_id="t0", attempt=2, verdict=Verdict.STOP) in rehearsal.report(
        "t0", checkpoint=True, has_room=True
    )


def test_a_restore_may_ask_for_another_number_of_workers() -> None:
    rehearsal = begun(4)
    rehearsal.suggest(workers(4, 4))
    rehearsal.start("t0")
    rehearsal.report("t0", checkpoint=True)
    rehearsal.crash()
    launched(rehearsal.resume(resources=workers(2, 2)))
    assert cpus(rehearsal) == 2


def test_a_restore_that_asks_for_more_than_a_loss_has_left_does_not_wait() -> None:
    run = begun(4, lost_worker_absence_s=7200)
    run.suggest(workers(1, 2))
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.fails("t0", kind="lost")
    run.crash()
    launched(run.resume(resources=workers(3, 3)))
    assert cpus(run) == 3


def test_no_more_than_there_is_for_the_fewest_could_never_start() -> None:
    rehearsal = begun(2)
    effects = rehearsal.suggest(workers(3, 4))
    assert any("can never start" in repr(effect) for effect in effects)
