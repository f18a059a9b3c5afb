"""The projector's files say what the journal says, whatever happens; and when it snapshots."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.snapshots import load_newest_snapshot
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    PauseTrial,
    StopTrial,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.syncer.journal.journal import Journal, read
from holdfast.trial.config import FailureConfig
from holdfast.trial.events import Saved
from holdfast.trial.trial import Status
from tests.experiment.projector.projected import (
    Clock,
    caught_up,
    contents,
    expected,
    live,
    loss_of,
    make_projector,
    rows_of,
)
from tests.experiment.projector.projected import run as run
from tests.rig.runs.recorded import RecordedExperiment


def without_curves(files: dict[str, bytes]) -> dict[str, bytes]:
    """Event files of the same curves may differ in their names and in the times of roll-backs."""
    return {name: data for name, data in files.items() if ".tfevents." not in name}


def steps(folder: Path) -> list[int]:
    loaded = EventAccumulator(str(folder))
    loaded.Reload()
    tagged = loaded.Tags()["scalars"]
    return [event.step for event in loaded.Scalars("ray/tune/loss")] if tagged else []


def test_a_record_that_is_still_being_written_is_waited_for(run: RecordedExperiment) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1})
    segment = run.layout.journal / "000000.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-3])
    projector = caught_up(run.layout)
    assert not (run.folder(trial) / "result.json").exists()
    segment.write_bytes(whole)
    projector.catch_up()
    assert loss_of(run, trial) == [1]


def test_only_the_newest_experiment_of_a_directory_is_written(tmp_path: Path) -> None:
    first = RecordedExperiment(tmp_path)
    old = first.begin()
    first.report(old, {"loss": 1})
    first.close()
    second = RecordedExperiment(tmp_path, run="beef0")
    new = second.begin()
    second.report(new, {"loss": 2})
    caught_up(second.layout)
    assert not (first.folder(old) / "result.json").exists()
    assert loss_of(second, new) == [2]
    second.close()


def test_a_journal_of_several_segments_is_one_journal(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    live(run)
    layout = Layout(tmp_path / "split")
    projector, journal = make_projector(layout), Journal(layout.journal)
    for payload, _ in read(run.layout.journal):
        journal.append([payload])
        projector.catch_up(journal.position)
        projector.snapshot()
        loaded = load_newest_snapshot(layout)
        assert loaded.snapshot is not None
        assert loaded.snapshot.position == journal.position
        journal.rotate()
    journal.close()
    caught_up(layout, boot="two")
    assert contents(layout.root) == expected(run, tmp_path)


class StopsTheThird(TrialScheduler):
    """Keeps a count of its own: it stops the trial of every third report."""

    def __init__(self) -> None:
        self.seen = 0

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        self.seen += isinstance(event, TrialReported)
        return [StopTrial(trial_id=event.trial_id)] if self.seen == 3 else []


def test_what_a_policy_has_decided_is_known_without_it(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path)
    run.machine.policy = StopsTheThird()
    trial = run.begin()
    run.report(trial, {"loss": 1})
    projector = caught_up(run.layout)
    projector.snapshot()
    run.report(trial, {"loss": 2})
    run.report(trial, {"loss": 3})
    projector = caught_up(run.layout)
    projector.snapshot()
    loaded = load_newest_snapshot(run.layout)
    assert loaded.snapshot is not None
    assert loaded.snapshot.machine.trials[trial].status is Status.STOPPING
    assert json.loads((run.folder(trial) / "result.json").read_text().splitlines()[2])["done"]
    run.close()


class StopsThePaused(TrialScheduler):
    """The first report pauses its trial, the second one stops it."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported):
            return []
        paused = [t.trial_id for t in view.trials.values() if t.status is Status.PAUSED]
        if paused:
            return [StopTrial(trial_id=paused[0])]
        return [PauseTrial(trial_id=event.trial_id)]


def test_a_paused_trial_that_the_scheduler_stops_has_ended_for_tensorboard(
    tmp_path: Path,
) -> None:
    run = RecordedExperiment(tmp_path)
    run.machine.policy = StopsThePaused()
    first, second = run.begin(), run.begin()
    projector = make_projector(run.layout)
    run.report(first, {"loss": 1}, checkpoint="committed")
    run.report(second, {"loss": 1})
    projector.catch_up()
    ended = [
        b"session_end_info" in events.read_bytes() for events in sorted(tmp_path.glob("*/ev*"))
    ]
    assert ended == [True, False]
    run.close()


def as_json(machine: Machine) -> str:
    return json.dumps(snapshot(machine), default=str)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_happens_the_files_are_what_the_journal_says(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Trials report, fail, continue and end; projectors crash, lag and start again in between."""
    shutil.rmtree(tmp_path / "exp", ignore_errors=True)
    run = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=99))
    boot, projector = "one", make_projector(run.layout)
    for _ in range(data.draw(st.integers(1, 25))):
        act(run, data)
        move = data.draw(st.sampled_from(["lag", "follow", "save", "crash", "cut power"]))
        if move in ("follow", "save"):
            projector.catch_up()
        if move == "save":
            projector.snapshot()
        if move == "crash":
            projector = make_projector(run.layout, boot)
        if move == "cut power":
            for path in run.layout.root.glob("train_*/*.*"):
                if path.is_file():
                    os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
            boot = f"boot at {run.now}"
            projector = make_projector(run.layout, boot)
    projector.catch_up()
    projector.snapshot()
    assert without_curves(contents(run.layout.root)) == without_curves(expected(run, tmp_path))
    for path in run.layout.root.glob("train_*"):
        assert steps(path) == [row["training_iteration"] for row in rows_of(path)]
    loaded = load_newest_snapshot(run.layout)
    assert loaded.snapshot is not None
    assert as_json(loaded.snapshot.machine) == as_json(run.machine)
    run.close()


def act(run: RecordedExperiment, data: st.DataObject) -> None:
    """One possible event."""
    trials = run.machine.trials.values()
    running = [t.trial_id for t in trials if t.status is Status.RUNNING]
    starting = [t.trial_id for t in trials if t.status is Status.STARTING]
    if starting:
        run.start(starting[0])
    elif not running or data.draw(st.integers(0, 5)) == 0:
        run.suggest({"lr": 0.5})
    else:
        trial = data.draw(st.sampled_from(running))
        match data.draw(st.sampled_from(["report", "report", "checkpoint", "fail", "finish"])):
            case "fail":
                run.fail(trial)
            case "finish":
                run.finish(trial)
            case kind:
                loss = {"loss": run.now, f"m{data.draw(st.integers(0, 3))}": 1}
                run.report(trial, loss, checkpoint="staged" * (kind == "checkpoint"))


def test_the_period_of_snapshots_grows_with_their_cost(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    projector = Projector(run.layout, ProjectorSettings(snapshot_period_s=10.0), clock, boot="one")
    projector.catch_up()
    waits = [projector.wait_s]
    clock.now = 4.0
    waits.append(projector.wait_s)
    clock.now = 11.0

    def slow(*_: object) -> int:
        clock.now += 2.0
        return 0

    monkeypatch.setattr("holdfast.experiment.projector.projector.write_snapshot", slow)
    projector.tend()
    waits.append(projector.wait_s)
    run.suggest()
    projector.catch_up()
    assert [*waits, projector.wait_s] == [10.0, 6.0, None, 60.0]


def test_a_snapshot_waits_until_the_journal_has_grown_as_much_but_not_for_ever(
    run: RecordedExperiment,
) -> None:
    clock = Clock()
    projector = Projector(run.layout, ProjectorSettings(snapshot_period_s=10.0), clock, boot="one")
    trial = run.begin()
    projector.catch_up()
    clock.now = 10.0
    projector.tend()
    run.report(trial, {"loss": 1})
    projector.catch_up()
    assert projector.wait_s == 600.0
    run.report(trial, {"text": "x" * 20_000})
    projector.catch_up()
    assert projector.wait_s == 10.0


def test_a_checkpoint_that_a_restore_finds_of_an_earlier_row_leaves_no_row_after_it(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    for loss in (0, 1):
        run.report(trial, {"loss": loss}, checkpoint="staged")
    first, _ = run.trial(trial).checkpoints
    for index in (1, 0):
        run.add(CheckpointLost(trial_id=trial, index=index, reason="gone", in_run=True))
    run.fail(trial)
    found = replace(first, index=run.trial(trial).next_checkpoint)
    run.add(Saved(trial_id=trial, attempt=run.trial(trial).attempt, checkpoint=found))
    run.start(trial)
    assert run.trial(trial).resumed_from == 1
    caught_up(run.layout)
    assert loss_of(run, trial) == [0]
    run.report(trial, {"loss": 20})
    caught_up(run.layout)
    assert loss_of(run, trial) == [0, 20]
