import json
import os
import random
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector import connection
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.snapshots import load_newest_snapshot
from holdfast.scheduler.events import Resumed
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
from holdfast.scheduler.snapshot import snapshot
from holdfast.syncer.journal.journal import Journal, Position, read
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status
from holdfast.trial.tuning import ResumeType
from tests.rig.recorded import RecordedExperiment

PROJECTIONS = ("params.json", "result.json", "progress.csv", "error.txt")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=9))
    yield recorded
    recorded.close()


def make_projector(layout: Layout, boot: str = "one", **wanted: Any) -> Projector:
    return Projector(layout, ProjectorSettings(**wanted), Clock(), boot=boot)


def caught_up(layout: Layout, boot: str = "one") -> Projector:
    """A projector that has written everything in the journal so far."""
    projector = make_projector(layout, boot)
    projector.catch_up()
    return projector


def live(run: RecordedExperiment) -> None:
    """Trials of every kind: done, failed for good, retried, running, waiting."""
    for kind in ("done", "retried", "running"):
        trial = run.begin({"kind": kind})
        for step in range(4):
            run.report(trial, {"loss": step, f"late_{step}": 1}, checkpoint="staged" * (step == 1))
        if kind == "done":
            run.finish(trial)
        if kind == "retried":
            run.fail(trial)
            run.start(trial)
            run.report(trial, {"loss": 77})
    run.suggest({"kind": "waiting"})


def contents(root: Path) -> dict[str, bytes]:
    """Every projection of every trial, with TensorBoard's."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.glob("train_*/*"))
        if path.name in PROJECTIONS or (".tfevents." in path.name and path.stat().st_size)
    }


def expected(run: RecordedExperiment, tmp_path: Path) -> dict[str, bytes]:
    """The files of a projector that reads the whole journal into a clean directory."""
    clean = Layout(tmp_path / "clean")
    shutil.rmtree(clean.root, ignore_errors=True)
    shutil.copytree(run.layout.journal, clean.journal)
    caught_up(clean)
    return contents(clean.root)


def without_curves(files: dict[str, bytes]) -> dict[str, bytes]:
    """Event files of the same curves may differ in their names and in the times of roll-backs."""
    return {name: data for name, data in files.items() if ".tfevents." not in name}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "result.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def steps(folder: Path) -> list[int]:
    loaded = EventAccumulator(str(folder))
    loaded.Reload()
    tagged = loaded.Tags()["scalars"]
    return [event.step for event in loaded.Scalars("ray/tune/loss")] if tagged else []


def loss_of(run: RecordedExperiment, trial: str) -> list[int]:
    return [row["loss"] for row in rows_of(run.folder(trial))]


def test_the_projector_reads_as_far_as_the_controller_says(run: RecordedExperiment) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1})
    projector = caught_up(run.layout)
    place = projector.position
    run.report(trial, {"loss": 2})
    projector.catch_up(place)
    assert (projector.position, loss_of(run, trial)) == (place, [1])
    projector.catch_up()
    assert loss_of(run, trial) == [1, 2]


def test_without_a_journal_there_is_nothing_to_do(tmp_path: Path) -> None:
    projector = caught_up(Layout(tmp_path))
    projector.snapshot()
    assert list(tmp_path.iterdir()) == []


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


def test_written_in_one_go_or_event_by_event_it_is_the_same(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    projector = make_projector(run.layout)
    add = run.add

    def add_and_tell(event: Any) -> None:
        add(event)
        projector.catch_up()

    run.add = add_and_tell  # type: ignore[method-assign]
    live(run)
    names = {
        name: data for name, data in expected(run, tmp_path).items() if "tfevents" not in name
    }
    assert names.items() <= contents(run.layout.root).items()


@pytest.mark.parametrize("boot", ["one", "two"])
@pytest.mark.parametrize("with_snapshot", [True, False])
def test_after_a_crash_torn_files_are_right_again(
    run: RecordedExperiment, tmp_path: Path, boot: str, with_snapshot: bool
) -> None:
    live(run)
    projector = caught_up(run.layout)
    if with_snapshot:
        projector.snapshot()
    run.report(run.begin(), {"loss": 5})
    wanted = expected(run, tmp_path)
    safe = with_snapshot and boot == "one"
    done = run.layout.trial(next(iter(run.machine.trials.values())).spec)
    dice = random.Random(7)
    for _ in range(25):
        for name, data in contents(run.layout.root).items():
            path = run.layout.root / name
            if not (safe and path.parent == done):
                path.write_bytes(data[: dice.randrange(len(data))])
        caught_up(run.layout, boot)
        assert contents(run.layout.root) == wanted


def test_files_of_trials_that_had_ended_are_left_alone_after_a_crash(
    run: RecordedExperiment,
) -> None:
    live(run)
    projector = caught_up(run.layout)
    projector.snapshot()
    done = next(iter(run.machine.trials))
    path = run.folder(done) / "result.json"
    before = path.stat().st_ino
    caught_up(run.layout)
    assert path.stat().st_ino == before


def test_after_a_power_cut_all_files_are_rewritten(run: RecordedExperiment) -> None:
    live(run)
    projector = caught_up(run.layout)
    projector.snapshot()
    done = next(iter(run.machine.trials))
    (run.folder(done) / "result.json").write_bytes(b"")
    caught_up(run.layout, boot="two")
    assert loss_of(run, done) == [0, 1, 2, 3]


def test_where_the_start_of_the_system_is_not_known_all_files_are_rewritten(
    run: RecordedExperiment,
) -> None:
    live(run)
    projector = caught_up(run.layout, boot="")
    projector.snapshot()
    done = next(iter(run.machine.trials))
    (run.folder(done) / "result.json").unlink()
    caught_up(run.layout, boot="")
    assert loss_of(run, done) == [0, 1, 2, 3]


def test_a_trial_that_ended_after_the_snapshot_is_rewritten(run: RecordedExperiment) -> None:
    projector = caught_up(run.layout)
    projector.snapshot()
    trial = run.begin()
    run.report(trial, {"loss": 1})
    run.finish(trial)
    projector.catch_up()
    (run.folder(trial) / "result.json").write_bytes(b'{"los')
    caught_up(run.layout)
    assert loss_of(run, trial) == [1]


def test_a_finished_trial_that_a_restore_resumes_continues_in_its_files(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.report(trial, {"loss": 2})
    run.finish(trial)
    projector = caught_up(run.layout)
    projector.snapshot()
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESUME))
    projector = caught_up(run.layout)
    run.start(trial)
    run.report(trial, {"loss": 3})
    projector.catch_up()
    assert loss_of(run, trial) == [1, 3]


def test_what_a_restore_resumes_is_rewritten_once_and_then_continues(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.finish(trial)
    projector = caught_up(run.layout)
    projector.snapshot()
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESUME))
    projector = caught_up(run.layout)
    path = run.folder(trial) / "result.json"
    before = path.stat().st_ino
    run.start(trial)
    run.report(trial, {"loss": 3})
    projector.catch_up()
    assert (loss_of(run, trial), path.stat().st_ino) == ([1, 3], before)


def test_a_restart_from_scratch_shows_nothing_of_before(run: RecordedExperiment) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.finish(trial)
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESTART))
    run.start(trial)
    run.report(trial, {"loss": 9})
    caught_up(run.layout)
    assert loss_of(run, trial) == [9]


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


# -- when it writes snapshots, and how it tells of trouble ---------------------------------------


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


class Controller:
    """The other end of the connection, scripted: its messages, and when time passes."""

    def __init__(self, clock: Clock, *script: Any) -> None:
        self.clock = clock
        self.script = deque(script)
        self.told: list[list[Any]] = []

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        if not self.script:
            return None
        if timeout_s == 0.0 and self.script[0] == "pause":
            self.script.popleft()
            raise TimeoutError
        if timeout_s and self.script[0] == "wait":
            self.script.popleft()
            self.clock.now += timeout_s
            raise TimeoutError
        step = self.script.popleft()
        if callable(step):
            step()
            return self.receive(timeout_s)
        message: list[Any] | None = step
        return message

    def send(self, message: list[Any]) -> None:
        self.told.append(message)


def serve(run: RecordedExperiment, *script: Any, **wanted: bool) -> list[list[Any]]:
    clock = Clock()
    controller = Controller(clock, *script)
    settings = ProjectorSettings(tensorboard=False, **wanted)
    connection.serve(controller, run.layout, settings, clock)
    assert not controller.script
    return controller.told


def upto(run: RecordedExperiment) -> list[Any]:
    place = Position(0, (run.layout.journal / "000000.log").stat().st_size)
    return ["upto", place.segment, place.offset]


def test_close_is_answered_when_everything_is_written(run: RecordedExperiment) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1})
    assert serve(run, ["close"]) == [["done", True]]
    assert loss_of(run, trial) == [1]
    assert load_newest_snapshot(run.layout).snapshot is not None


def test_a_controller_that_asks_hears_how_far_all_files_are_written(
    run: RecordedExperiment,
) -> None:
    other, trial = run.begin(), run.begin()
    first = upto(run)
    blocked = in_the_way(run, trial)
    run.report(other, {"loss": 1})
    second = upto(run)
    told = serve(
        run, second, "pause", "wait", blocked.unlink, "wait", first, "pause", ["close"],
        tells_written=True,
    )  # fmt: skip
    assert [kind for kind, *_ in told] == ["trouble", "written", "done"]
    assert told[1][1:] == second[1:]


def test_when_the_controller_is_gone_the_rest_of_the_journal_is_written(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    first = upto(run)
    run.report(trial, {"loss": 1})
    assert serve(run, first, "pause") == []
    assert loss_of(run, trial) == [1]
    assert load_newest_snapshot(run.layout).snapshot is not None


def test_news_that_wait_already_are_read_in_one_go(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(Projector, "catch_up", lambda self, stop=None: told.append(stop))
    news = [["upto", 0, offset] for offset in (8, 90, 200)]
    serve(run, *news, "pause", ["upto", 0, 300], ["close"])
    assert told == [Position(0, 200), None]


def test_a_snapshot_is_written_while_no_news_come(run: RecordedExperiment) -> None:
    run.suggest()
    found = []

    def look() -> None:
        found.append(load_newest_snapshot(run.layout).snapshot is not None)

    serve(run, upto(run), "pause", look, "wait", look, ["close"])
    assert found == [False, True]


def in_the_way(run: RecordedExperiment, trial: str) -> Path:
    """A file where the trial's directory would be: not even root can write there."""
    path = run.folder(trial)
    path.write_text("in the way")
    return path


def test_files_that_cannot_be_written_are_reported_once_and_written_later(
    run: RecordedExperiment,
) -> None:
    other, trial = run.begin(), run.begin()
    blocked = in_the_way(run, trial)
    run.report(other, {"loss": 5})
    run.report(trial, {"loss": 1})
    first = upto(run)
    run.report(trial, {"loss": 2})
    seen = []
    told = serve(
        run, first, "pause", lambda: seen.append(loss_of(run, other)), "wait", upto(run), "pause",
        blocked.unlink, "wait", lambda: seen.append(loss_of(run, trial)), ["close"],
    )  # fmt: skip
    assert [kind for kind, *_ in told] == ["trouble", "done"]
    assert str(blocked) in told[0][1]
    assert "File exists" in told[0][1]
    assert seen == [[5], [1, 2]]


def test_trouble_that_comes_back_is_reported_again(run: RecordedExperiment) -> None:
    trial = run.begin()
    blocked = in_the_way(run, trial)
    first = upto(run)

    def block() -> None:
        shutil.rmtree(blocked)
        in_the_way(run, trial)
        run.report(trial, {"loss": 1})

    told = serve(run, first, "pause", blocked.unlink, "wait", block, ["close"])
    assert [kind for kind, *_ in told] == ["trouble", "trouble", "done"]


def test_what_could_not_be_written_is_written_by_the_next_projector(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    blocked = in_the_way(run, trial)
    run.report(trial, {"loss": 1})
    run.finish(trial)
    trouble, end = serve(run, ["close"])
    assert (trouble[0], end) == ("trouble", ["done", False])
    loaded = load_newest_snapshot(run.layout)
    assert loaded.snapshot is not None
    assert loaded.snapshot.unwritten == (trial,)
    blocked.unlink()
    assert serve(run, ["close"]) == [["done", True]]
    assert loss_of(run, trial) == [1]


def test_a_snapshot_that_cannot_be_written_does_not_end_the_projector(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = run.begin()

    def refuse(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.experiment.projector.projector.write_snapshot", refuse)
    run.report(trial, {"loss": 1})
    told = serve(run, upto(run), "pause", "wait", ["close"])
    assert told == [["trouble", "snapshot: No space left on device"], ["done", False]]
    assert loss_of(run, trial) == [1]


def test_a_journal_that_makes_no_sense_is_reported_and_ends_the_projector(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path)
    run.close()
    journal = Journal(run.layout.journal)
    journal.append([b"\x93\xa7Unheard\x01\x80"])
    journal.close()
    controller = Controller(Clock(), ["close"])
    with pytest.raises(ValueError, match="Unheard"):
        connection.serve(
            controller, run.layout, ProjectorSettings(tensorboard=False), controller.clock
        )
    assert [kind for kind, *_ in controller.told] == ["trouble"]
    assert "Unheard" in controller.told[0][1]


def test_a_message_that_no_one_knows_ends_the_projector(run: RecordedExperiment) -> None:
    with pytest.raises(ValueError, match="sing"):
        serve(run, ["sing", 3])
