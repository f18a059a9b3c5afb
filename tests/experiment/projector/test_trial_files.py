import csv
import errno
import io
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata

from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.scheduler.events import Exited
from holdfast.trial.config import CheckpointConfig, FailureConfig
from tests.rig.runs.recorded import RecordedExperiment

RETRIED = FailureConfig(max_failures=9)
END = "_hparams_/session_end_info"


class Written:
    """A recorded experiment and its projector."""

    def __init__(self, root: Path, *, config_in_rows: bool = True, **spec: Any) -> None:
        self.run = RecordedExperiment(root, **spec)
        settings = ProjectorSettings(config_in_rows=config_in_rows)
        self.projector = Projector(self.run.layout, settings, lambda: self.run.now, boot="one")

    def path(self, trial: str, name: str) -> Path:
        return self.run.folder(trial) / name

    def text(self, trial: str, name: str) -> str:
        self.projector.catch_up()
        assert self.projector.trouble is None
        return self.path(trial, name).read_bytes().decode()

    def rows(self, trial: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text(trial, "result.json").splitlines()]

    def table(self, trial: str) -> list[dict[str, str]]:
        text = io.StringIO(self.text(trial, "progress.csv"), newline="")
        return list(csv.DictReader(text))

    def events(self, trial: str) -> EventAccumulator:
        self.projector.catch_up()
        loaded = EventAccumulator(str(self.run.folder(trial)))
        loaded.Reload()
        return loaded

    def curve(self, trial: str, tag: str = "loss") -> list[tuple[int, float]]:
        return [(e.step, e.value) for e in self.events(trial).Scalars(f"ray/tune/{tag}")]

    def shown(self, trial: str, key: str = "loss") -> list[tuple[int, float]]:
        """The content of all three projections, which must agree."""
        rows = [(row["training_iteration"], row[key]) for row in self.rows(trial)]
        table = [(int(r["training_iteration"]), float(r[key])) for r in self.table(trial)]
        assert rows == table == self.curve(trial, key)
        return rows


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path, failure=RETRIED)
    yield made
    made.run.close()


def test_params_are_there_as_soon_as_the_trial_is(written: Written) -> None:
    trial = written.run.suggest({"lr": 0.5, "net": {"width": 3}})
    text = written.text(trial, "params.json")
    assert json.loads(text) == {"lr": 0.5, "net": {"width": 3}}
    assert text == '{\n  "lr": 0.5,\n  "net": {"width": 3}\n}\n'
    assert [p.name for p in written.run.folder(trial).iterdir()] == ["params.json"]


def test_each_report_is_a_line_of_json_with_the_config(written: Written) -> None:
    trial = written.run.begin({"lr": 0.5})
    written.run.report(trial, {"loss": math.nan})
    written.run.report(trial, {"loss": 0.5})
    first, second = written.rows(trial)
    assert math.isnan(first["loss"])
    assert (second["loss"], second["training_iteration"], second["pid"]) == (0.5, 2, 1001)
    assert first["config"] == second["config"] == {"lr": 0.5}


def test_the_config_in_each_row_can_be_turned_off(tmp_path: Path) -> None:
    written = Written(tmp_path, config_in_rows=False)
    trial = written.run.begin({"lr": 0.5})
    written.run.report(trial, {"loss": 0.5})
    assert "config" not in written.rows(trial)[0]
    written.run.close()


def test_a_metric_called_config_takes_the_place_of_the_config(written: Written) -> None:
    trial = written.run.begin({"lr": 0.5})
    written.run.report(trial, {"config": 3})
    assert written.rows(trial)[0]["config"] == 3
    assert written.table(trial)[0]["config"] == "3"


def test_the_table_is_flat_and_without_the_config(written: Written) -> None:
    trial = written.run.begin({"lr": 0.5})
    metrics = {
        "val": {"loss": 0.25},
        "note": 'a, "b"\nc',
        "rates": [1, 2],
        "ok": True,
        "gap": None,
    }
    written.run.report(trial, metrics)
    [row] = written.table(trial)
    assert row["val/loss"] == "0.25"
    assert (row["note"], row["rates"], row["ok"], row["gap"]) == (
        'a, "b"\nc',
        "[1, 2]",
        "True",
        "",
    )
    assert row["checkpoint_dir_name"] == ""
    assert not [key for key in row if key.startswith("config")]


def test_a_metric_that_appears_late_adds_a_column_and_loses_no_row(written: Written) -> None:
    trial = written.run.begin()
    big = list(range(60_000))  # a cell beyond what Python's csv reads by default
    for metrics in ({"loss": 3, "big": big}, {"loss": 2, "note": "a\r\nb"}, {"late": 1}):
        written.run.report(trial, metrics)
        written.projector.catch_up()
    written.run.report(trial, {"loss": 1, "last": "x"})
    table = written.table(trial)
    assert [row["loss"] for row in table] == ["3", "2", "", "1"]
    assert [row["late"] for row in table] == ["", "", "1", ""]
    assert [row["last"] for row in table] == ["", "", "", "x"]
    assert table[1]["note"] == "a\r\nb"
    assert json.loads(table[0]["big"]) == big


def test_a_new_attempt_shows_only_what_its_checkpoint_holds(written: Written) -> None:
    trial = written.run.begin()
    for loss in (9.0, 8.0, 7.0, 6.0):
        written.run.report(trial, {"loss": loss}, checkpoint="staged" if loss == 8.0 else "")
    assert written.shown(trial) == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    written.run.fail(trial)
    written.run.start(trial)
    assert written.shown(trial) == [(1, 9.0), (2, 8.0)]
    written.run.report(trial, {"loss": 5.0})
    assert written.shown(trial) == [(1, 9.0), (2, 8.0), (3, 5.0)]
    restored = written.rows(trial)[2]
    assert restored["iterations_since_restore"] == 1
    assert restored["time_total_s"] == 1.5
    assert restored["time_since_restore"] == 0.5


def test_without_a_checkpoint_a_new_attempt_begins_with_nothing(written: Written) -> None:
    trial = written.run.begin()
    written.run.report(trial, {"loss": 9.0, "first": 1})
    written.projector.catch_up()
    written.run.fail(trial)
    written.run.start(trial)
    written.projector.catch_up()
    assert not written.path(trial, "result.json").exists()
    assert not written.path(trial, "progress.csv").exists()
    written.run.report(trial, {"loss": 5.0})
    assert written.shown(trial) == [(1, 5.0)]
    assert "first" not in written.table(trial)[0]


def test_a_reader_sees_the_old_file_whole_while_it_is_cut(written: Written) -> None:
    trial = written.run.begin()
    written.run.report(trial, {"loss": 9.0}, checkpoint="staged")
    written.run.report(trial, {"loss": 8.0})
    before = written.text(trial, "result.json")
    with written.path(trial, "result.json").open() as file:
        written.run.fail(trial)
        written.run.start(trial)
        assert len(written.rows(trial)) == 1
        assert file.read() == before
    left = [p.name for p in written.run.folder(trial).iterdir() if p.name.startswith(".tmp-")]
    assert left == []


def test_a_running_tensorboard_follows_a_roll_back(written: Written) -> None:
    trial = written.run.begin()
    written.run.report(trial, {"loss": 9.0}, checkpoint="staged")
    written.run.report(trial, {"loss": 8.0})
    running = written.events(trial)
    for loss in (7.0, 6.0):
        written.run.fail(trial)
        written.run.start(trial)
        written.run.report(trial, {"loss": loss})
        written.projector.catch_up()
        running.Reload()
        events = running.Scalars("ray/tune/loss")
        assert [(e.step, e.value) for e in events] == [(1, 9.0), (2, loss)]


@pytest.mark.parametrize("checkpoints", range(9, 22))
def test_a_roll_back_is_right_after_any_number_of_superseded_checkpoints(
    tmp_path: Path, checkpoints: int
) -> None:
    kept = CheckpointConfig(num_to_keep=1)
    written = Written(tmp_path, failure=RETRIED, checkpoint=kept)
    trial = written.run.begin()
    for step in range(checkpoints):
        written.run.report(trial, {"loss": float(step)}, checkpoint="committed")
    written.run.report(trial, {"loss": 99.0})
    written.run.fail(trial)
    written.run.start(trial)
    assert written.shown(trial) == [(step + 1, float(step)) for step in range(checkpoints)]
    written.run.close()


def test_a_report_of_an_older_attempt_is_not_shown(written: Written) -> None:
    trial = written.run.begin()
    written.run.report(trial, {"loss": 9.0})
    stale = written.run.trial(trial)
    written.run.fail(trial, exits=False)
    written.run.report(trial, {"loss": 8.0})
    assert stale.attempt == 1
    assert written.shown(trial) == [(1, 9.0)]


def test_each_failure_is_an_entry_of_error_txt(written: Written) -> None:
    trial = written.run.begin()
    written.run.fail(trial, "ValueError", "oh no")
    written.run.start(trial)
    cause = "was killed by signal 9 (SIGKILL)"
    written.run.add(Exited(trial_id=trial, attempt=2, cause=cause))
    first, second = written.text(trial, "error.txt").split("\n\n")[:2]
    assert first.startswith("Attempt 1 failed at ")
    assert "ValueError: oh no" in first
    assert 'File "train.py", line 7' in first
    assert second.startswith("Attempt 2 failed at ")
    assert "WorkerLost: the worker process 1002 was killed by signal 9 (SIGKILL)" in second


@pytest.mark.parametrize(
    ("fails", "status"), [(False, api_pb2.STATUS_SUCCESS), (True, api_pb2.STATUS_FAILURE)]
)
def test_tensorboard_learns_how_the_trial_ended(tmp_path: Path, fails: bool, status: int) -> None:
    written = Written(tmp_path)
    trial = written.run.begin({"lr": 0.5})
    written.run.report(trial, {"loss": 9.0})
    assert END not in written.events(trial).PluginTagToContent("hparams")
    if fails:
        written.run.fail(trial)
    else:
        written.run.finish(trial)
    content = written.events(trial).PluginTagToContent("hparams")
    assert metadata.parse_session_end_info_plugin_data(content[END]).status == status
    written.run.close()


def test_an_event_file_of_the_users_own_is_left_alone(written: Written) -> None:
    trial = written.run.suggest()
    written.projector.catch_up()
    own = written.path(trial, "events.out.tfevents.1700000000.host.77.0")
    own.write_bytes(b"mine")
    again = Projector(written.run.layout, ProjectorSettings(), boot="two")
    again.catch_up()
    assert own.read_bytes() == b"mine"


def test_a_file_that_something_else_has_changed_is_rewritten(written: Written) -> None:
    trial = written.run.begin()
    written.run.report(trial, {"loss": 9.0})
    written.projector.catch_up()
    with written.path(trial, "result.json").open("a") as file:
        file.write("not ours")
    written.run.report(trial, {"loss": 8.0})
    assert written.shown(trial) == [(1, 9.0), (2, 8.0)]


def test_a_full_disk_leaves_whole_lines_and_all_of_them_later(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, other = written.run.begin(), written.run.begin()
    written.run.report(trial, {"loss": 9.0})
    written.run.report(other, {"loss": 1.0})
    assert written.shown(trial) == [(1, 9.0)]

    def full(descriptor: int, data: Any) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(written.run.folder(trial))):
            real_write(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data)

    real_write = os.write
    monkeypatch.setattr(os, "write", full)
    written.run.report(trial, {"loss": 8.0})
    written.run.report(other, {"loss": 2.0})
    written.projector.catch_up()
    assert "No space left on device" in (written.projector.trouble or "")
    left = written.path(trial, "result.json").read_text()
    assert [json.loads(line)["loss"] for line in left.splitlines()] == [9.0]
    assert len(written.path(other, "result.json").read_text().splitlines()) == 2
    monkeypatch.undo()
    written.run.report(trial, {"loss": 7.0})
    written.projector.repair()
    assert written.shown(trial) == [(1, 9.0), (2, 8.0), (3, 7.0)]
    assert written.shown(other) == [(1, 1.0), (2, 2.0)]
