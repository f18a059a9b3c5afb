"""`holdfast best`: the config, its row and checkpoint, and a trial that was stopped or failed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.trial.events import Returned
from tests.command.commands import parsed, told
from tests.rig.runs.recorded import RecordedExperiment


def test_best_is_a_config_that_a_program_can_read(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["best", str(store / "ended")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"lr": 0.1, "kind": "a"}
    assert printed.err == "holdfast: loss=0.1, trial d2a66_00000 at iteration 5\n"
    found = parsed(capsys, "best", "--mode", "max", "--scope", "all", store / "ended")
    assert (found["trial_id"], found["value"], found["scope"]) == ("d2a66_00000", 1.0, "all")
    assert (found["iteration"], found["metrics"]["loss"]) == (1, 1.0)
    assert main(["best", str(store / "ended"), "--metric", "nothing"]) == 1
    assert "no trial reported a number 'nothing'" in capsys.readouterr().err


def test_of_a_best_row_the_checkpoint_is_its_own_or_the_newest_before_it(
    store: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Trial 0 has a checkpoint of each iteration but the fifth; the newest is of the fourth."""
    best = ("best", "--mode", "max", "--scope", "all", store / "ended")
    found = parsed(capsys, *best)
    checkpoint = f"{found['folder']}/checkpoint_000000"
    assert (found["checkpoint"], found["checkpoint_iteration"]) == (checkpoint, 1)
    assert caplog.text == ""
    found = parsed(capsys, *best, "--metric", "training_iteration")
    checkpoint = f"{found['folder']}/checkpoint_000003"
    assert (found["iteration"], found["checkpoint"]) == (5, checkpoint)
    assert found["checkpoint_iteration"] == 4
    assert "`checkpoint` is that of iteration 4" in caplog.text
    newest = parsed(capsys, *best[:3], store / "ended")
    assert (newest["scope"], newest["iteration"], newest["checkpoint_iteration"]) == ("last", 5, 5)


def worse_at_the_end(config: dict[str, Any]) -> None:
    for loss in (3, 1, 2):
        folder = tune.staging_directory()
        Path(folder, "model.txt").write_text(str(loss))
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))


def test_a_better_earlier_checkpoint_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune.Tuner(
        worse_at_the_end,
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    capsys.readouterr()
    assert main(["best", str(tmp_path / "run"), "--checkpoint", str(tmp_path / "last")]) == 0
    told = capsys.readouterr().err
    assert "the checkpoint of iteration 2 has a better loss: 1, and 2 here. --scope all" in told
    last = ["best", str(tmp_path / "run"), "--mode", "max", "--checkpoint", str(tmp_path / "max")]
    assert main(last) == 0
    assert "iteration 1 has a better loss: 3" in capsys.readouterr().err


def test_the_best_trials_checkpoint_is_fetched_and_a_model_explains_itself(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = store / "ended", tmp_path / "weights"
    out = told(capsys, "best", path, "--checkpoint", target)
    assert out == f"{target}: the checkpoint of trial d2a66_00000 at iteration 4 (1 file, 20 B)\n"
    assert os.listdir(target) == ["model.txt"]
    assert main(["best", str(path), "--checkpoint", str(target)]) == 2
    assert "is not empty: name a new directory" in capsys.readouterr().err
    done = parsed(capsys, "best", path, "--checkpoint", tmp_path / "second")
    assert (done["directory"], done["checkpoint_iteration"]) == (str(tmp_path / "second"), 4)
    assert done["config"] == {"lr": 0.1, "kind": "a"}
    model = tmp_path / "model"
    done = parsed(capsys, "export", path, "--model", model, "--trial", "1")
    assert (done["trial_id"], done["files"]) == ("d2a66_00001", 1)
    assert sorted(os.listdir(model)) == ["metrics.json", "model.txt", "params.json"]
    assert json.loads((model / "params.json").read_text()) == {"lr": 0.2, "kind": "a"}
    assert json.loads((model / "metrics.json").read_text())["loss"] == 0.2
    assert main(["export", str(path), "--model", str(tmp_path / "third"), "--trial", "2"]) == 1
    assert "trial d2a66_00002 has no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()


def test_best_without_a_goal_names_the_option_and_the_users_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RecordedExperiment(tmp_path / "run")
    run.report(run.begin({"lr": 0.1}), {"loss": 0.5, "done": False})
    run.ends()
    assert main(["best", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert "pass one, as in --metric loss --mode min. The trials reported loss\n" in err
    assert main(["best", str(tmp_path / "run"), "--metric", "loss"]) == 2
    assert "In a shell: --mode min or --mode max" in capsys.readouterr().err


def prune(run: RecordedExperiment, trial: str) -> None:
    run.add(Returned(trial_id=trial, attempt=1, pruned=True))


@pytest.mark.parametrize(
    ("ends", "how"),
    [
        (
            prune,
            "was stopped early: TrialPruned stopped it at iteration 1: its function raised it",
        ),
        (RecordedExperiment.fail, "failed after iteration 1: ValueError: oh no"),
    ],
    ids=["stopped", "failed"],
)
def test_how_a_best_trial_ended_early_is_said_on_stderr(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ends: Callable[[RecordedExperiment, str], None],
    how: str,
) -> None:
    run = RecordedExperiment(tmp_path / "run", metric="loss", mode="min")
    good, cut = run.begin({"lr": 0.1}), run.begin({"lr": 0.2})
    run.report(good, {"loss": 0.7})
    run.finish(good)
    run.report(cut, {"loss": 0.5})
    ends(run, cut)
    run.ends()
    assert main(["best", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"lr": 0.2}
    assert printed.err == (
        f"holdfast: the best trial, {cut}, {how}\nholdfast: loss=0.5, trial {cut} at iteration 1\n"
    )
