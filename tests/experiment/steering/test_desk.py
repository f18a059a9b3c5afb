"""What an order does to a run, and what the person and the run's output hear of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.control.person_orders import PersonOrders
from holdfast.experiment.steering.orders import (
    AddConfig,
    AddTrials,
    LimitTrials,
    Order,
    PauseTrials,
    ResumeTrials,
    StopExperiment,
    StopTrials,
    WriteNote,
)
from holdfast.experiment.steering.socket import Refused
from holdfast.scheduler import events
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import StopReason
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.runs.steered import SteeredRun

pytestmark = pytest.mark.anyio
BY = "ann (command)"


@pytest.fixture
def recorded(tmp_path: Path) -> RecordedExperiment:
    """Trials 0 and 1 run, 0 has a checkpoint; 2 has ended. No other one has room."""
    made = RecordedExperiment(tmp_path / "run", num_samples=5)
    first, second, third = (made.begin() for _ in range(3))
    made.report(first, {"loss": 1.0}, checkpoint="committed")
    made.report(second, {"loss": 1.0})
    made.finish(third)
    made.add(events.LimitChanged(max_concurrent=2, by="bob (page)"))
    return made


@pytest.fixture
def run(recorded: RecordedExperiment) -> SteeredRun:
    return SteeredRun(recorded)


def trial(number: int) -> str:
    return f"d2a66_{number:05d}"


async def done(run: Any, order: Order) -> str:
    text = await PersonOrders(run).perform(order, BY)
    assert run.told == [f"{BY}: {text}"]
    run.told.clear()
    return text


async def refused(run: Any, order: Order) -> str:
    before = run.recorded(BY)
    with pytest.raises(Refused) as caught:
        await PersonOrders(run).perform(order, BY)
    assert (run.recorded(BY), run.told) == (before, [])
    return str(caught.value)


async def test_a_trial_stops_with_the_name_of_the_person(run: SteeredRun) -> None:
    text = await done(run, StopTrials(trials=(trial(0),)))
    assert text == "trial d2a66_00000 stops"
    assert run.recorded(BY) == [events.TrialStopOrdered(trial_id=trial(0), by=BY)]
    stop = run.machine.trials[trial(0)].stop
    assert stop is not None
    assert (stop.reason, stop.by) == (StopReason.USER, BY)
    assert await refused(run, StopTrials(trials=(trial(0),))) == (
        "trial d2a66_00000 is stopping already"
    )


async def test_an_order_applies_to_the_trials_that_it_fits_and_names_the_others(
    run: SteeredRun,
) -> None:
    several = (trial(0), trial(2), "nobody", trial(1))
    assert await done(run, StopTrials(trials=several)) == (
        "2 trials stop (d2a66_00000, d2a66_00001). Not done: trial d2a66_00002 has ended: "
        "TERMINATED; there is no trial 'nobody'"
    )
    assert run.posts == [2]
    assert await refused(run, StopTrials(trials=(trial(2), "nobody"))) == (
        "trial d2a66_00002 has ended: TERMINATED; there is no trial 'nobody'"
    )


async def test_a_pause_says_when_it_happens_and_a_resume_takes_it_back(
    run: SteeredRun, recorded: RecordedExperiment
) -> None:
    waiting = recorded.suggest()
    assert await done(run, PauseTrials(trials=(trial(0), trial(1), waiting))) == (
        "trial d2a66_00003 is paused; 2 trials pause (d2a66_00000, d2a66_00001) at their next "
        "report with a checkpoint; trial d2a66_00001 has no checkpoint yet, and would start "
        "from scratch if paused at once"
    )
    assert run.machine.trials[waiting].waits_for_person
    assert await refused(run, PauseTrials(trials=(waiting,))) == (
        "trial d2a66_00003 is paused already"
    )
    assert await done(run, ResumeTrials(trials=(trial(0), waiting))) == (
        "2 trials resume (d2a66_00000, d2a66_00003)"
    )
    assert await refused(run, ResumeTrials(trials=(trial(0),))) == (
        "trial d2a66_00000 is not paused: RUNNING"
    )


async def test_the_limit_the_samples_a_config_and_a_note(run: SteeredRun) -> None:
    assert await done(run, LimitTrials(max_concurrent=1)) == (
        "at most 1 trial runs at once from now on. 2 run now, and continue"
    )
    assert run.machine.spec.max_concurrent == 1
    assert await done(run, LimitTrials(max_concurrent=None)) == (
        "any number of trials may run at once from now on"
    )
    run.own_limit = 3
    assert await done(run, LimitTrials(max_concurrent=4)) == (
        "at most 4 trials run at once from now on. The search algorithm itself lets at most 3 run"
    )
    resources = PlacementGroupFactory([{"CPU": 400}])
    run.machine.spec = replace(run.machine.spec, resources=resources)
    assert await done(run, LimitTrials(max_concurrent=4)) == (
        "at most 4 trials run at once from now on, but there is room for 2: each asks for 400 "
        "CPUs, and this machine has 1000 CPUs. Ask for less in tune.with_resources(), or declare "
        "more in holdfast.init(). The search algorithm itself lets at most 3 run"
    )
    assert await done(run, AddTrials(count=3)) == "3 trials are added: num_samples is now 8"
    run.per_sample = 2
    assert await done(run, AddTrials(count=1)) == (
        "num_samples is now 9: the search makes 18 trials in total"
    )
    assert await done(run, AddConfig(config={"lr": 0.1})) == (
        "a trial with this config is added and starts next"
    )
    assert await done(run, AddConfig(config={"lr": 7})) == (
        "a trial with this config is added and starts next. its domain has no lr=7"
    )
    assert await refused(run, AddConfig(config={"lrr": 0.1})) == "there is no parameter 'lrr'"
    assert await done(run, WriteNote(trial=trial(2), text="plateaus")) == (
        "the note of trial d2a66_00002 is written"
    )
    assert run.machine.trials[trial(2)].note == "plateaus"
    assert await done(run, WriteNote(trial=trial(2), text="")) == (
        "the note of trial d2a66_00002 is removed"
    )
    assert await refused(run, WriteNote(trial="nobody", text="")) == "there is no trial 'nobody'"
    assert [type(one).__name__ for one in run.recorded(BY)] == [
        *("LimitChanged", "LimitChanged", "LimitChanged", "LimitChanged"),
        *("SamplesAdded", "SamplesAdded"),
        *("ConfigAdded", "ConfigAdded", "NoteWritten", "NoteWritten"),
    ]


async def test_many_trials_are_a_few_writes_and_reports_are_answered_in_between(
    tmp_path: Path,
) -> None:
    recorded = RecordedExperiment(tmp_path / "run", max_concurrent=1)
    recorded.begin()
    ids = tuple(recorded.suggest() for _ in range(450))
    run = SteeredRun(recorded)
    text = await done(run, PauseTrials(trials=ids))
    assert text.startswith("450 trials are paused (d2a66_00001, ")
    assert text.endswith(" and 440 more)")
    assert run.posts == [200, 200, 50]


async def test_an_order_that_the_disk_cannot_take_is_refused(run: SteeredRun) -> None:
    run.fails_after = 0
    told = await refused(run, StopTrials(trials=(trial(0),)))
    assert told == "the run is ending: no space left for the journal"
    assert await refused(run, AddTrials(count=1)) == told


async def test_what_was_done_before_the_run_ended_is_said(tmp_path: Path) -> None:
    recorded = RecordedExperiment(tmp_path / "run", max_concurrent=1)
    recorded.begin()
    ids = tuple(recorded.suggest() for _ in range(300))
    run = SteeredRun(recorded)
    run.fails_after = 1
    text = await done(run, PauseTrials(trials=ids))
    assert text.startswith("200 trials are paused")
    assert text.endswith("Not done: 100 trials: the run is ending: no space left for the journal")


async def test_before_a_run_has_begun_only_its_end_can_be_ordered(run: SteeredRun) -> None:
    run.controller = None
    assert await refused(run, AddTrials(count=1)) == (
        "the run is still starting: try again in a moment"
    )
    assert await PersonOrders(cast(Any, run)).perform(StopExperiment(), BY) == (
        "the experiment stops. A restore resumes it"
    )


async def test_the_experiment_stops_once_however_often_it_is_ordered(run: SteeredRun) -> None:
    for told in ("the experiment stops. A restore resumes it", None, None):
        text = await PersonOrders(cast(Any, run)).perform(StopExperiment(), BY)
        assert text == (told or f"the run is ending already: stopped by {BY}")
    assert run.ended_by == [BY]
    assert run.told == []  # `fit()` says it
    assert await refused(run, AddTrials(count=1)) == f"the run is ending: stopped by {BY}"


async def test_a_run_that_has_finished_takes_no_order(
    run: SteeredRun, recorded: RecordedExperiment
) -> None:
    recorded.finish(trial(0))
    recorded.finish(trial(1))
    recorded.add(events.SearchEnded())
    assert run.machine.finished
    for order in (StopExperiment(), StopTrials(trials=(trial(0),)), AddTrials(count=1)):
        assert await refused(run, order) == "the run has finished"
