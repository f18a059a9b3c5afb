"""A projector and its controller: news, answers, reports of trouble, and the end."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.projector import process
from holdfast.experiment.projector.projector import ProjectorSettings
from holdfast.experiment.records.snapshots import load_newest_snapshot
from holdfast.syncer.journal.journal import Journal, Position
from tests.experiment.projector.projected import Clock, loss_of
from tests.experiment.projector.projected import run as run
from tests.rig.runs.recorded import RecordedExperiment


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
    process.serve(controller, run.layout, settings, clock)
    assert not controller.script
    return controller.told


def upto(run: RecordedExperiment) -> list[Any]:
    place = Position(0, (run.layout.journal / "000000.log").stat().st_size)
    return ["upto", place.segment, place.offset]


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
        process.serve(
            controller, run.layout, ProjectorSettings(tensorboard=False), controller.clock
        )
    assert [kind for kind, *_ in controller.told] == ["trouble"]
    assert "Unheard" in controller.told[0][1]
