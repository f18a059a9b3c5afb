"""Repeats a trial of a population from the policy's log."""

import json
from typing import Any

import pytest

from holdfast.scheduler.effects import Launch
from holdfast.scheduler.policies.pbt import ScheduleReplay, schedule_of
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.trial import Status


def line(tag: str, source: str, iteration: int, at: int, before: float, after: float) -> str:
    return json.dumps([tag, source, iteration, at, {"lr": before}, {"lr": after}]) + "\n"


LOG = line("1_a", "2_b", 3, 4, 0.1, 0.2) + line("0_c", "1_a", 9, 8, 0.2, 0.3)


def test_the_schedule_goes_through_those_that_the_trial_took_over_from() -> None:
    schedule = schedule_of(LOG)
    assert schedule.first == {"lr": 0.1}
    assert schedule.changes == ((4, {"lr": 0.2}), (8, {"lr": 0.3}))
    assert ScheduleReplay(schedule).config == {"lr": 0.1}


def test_what_was_overwritten_by_a_later_takeover_does_not_count() -> None:
    """Ray leaves the earlier history of a trial in its file."""
    schedule = schedule_of(line("0_c", "3_d", 2, 2, 0.7, 0.8) + LOG)
    assert schedule.first == {"lr": 0.1}
    assert len(schedule.changes) == 2


@pytest.mark.parametrize("log", ["", "\n", "{}", "[1, 2]", "no json", '["a", "b", 1, 2, 3, {}]'])
def test_what_is_not_a_log_is_refused(log: str) -> None:
    with pytest.raises(ValueError, match=r"log of a trial's policy|Expecting value"):
        schedule_of(log)


def replayed(**spec: Any) -> Rehearsal:
    run = Rehearsal(policy=ScheduleReplay(schedule_of(LOG)), scheduler="Replay", **spec)
    run.suggest()
    run.start("t0")
    return run


def at(run: Rehearsal, iteration: int) -> float:
    """The config with which the trial trains after this iteration."""
    while run.trial("t0").iteration < iteration:
        run.report("t0", {"loss": 1.0}, checkpoint=True)
        if run.trial("t0").status is not Status.RUNNING:
            (launch,) = [e for e in run.ends("t0") if isinstance(e, Launch)]
            assert launch.checkpoint is not None
            run.start("t0")
    return float(run.trial("t0").config["lr"])


def test_each_config_begins_where_it_began_in_the_population() -> None:
    run = replayed()
    assert [at(run, iteration) for iteration in (0, 3, 4, 7, 8, 12)] == [
        *(0.1, 0.1),
        *(0.2, 0.2),
        *(0.3, 0.3),
    ]


def test_a_crash_changes_nothing_about_the_schedule() -> None:
    run = replayed()
    at(run, 5)
    run.crash()
    run.resume()
    run.start("t0")
    assert [at(run, iteration) for iteration in (5, 7, 8)] == [0.2, 0.2, 0.3]


def test_a_second_trial_ends_the_run() -> None:
    run = replayed()
    run.suggest()
    assert run.machine.ending is not None
    assert "num_samples=1" in run.machine.ending.message
