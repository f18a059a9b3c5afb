"""What `holdfast best` prints next to the config: what to pass, and what was stopped early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.trial.events import Returned
from tests.rig.recorded import RecordedExperiment


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


def test_a_best_trial_that_was_stopped_early_is_named_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RecordedExperiment(tmp_path / "run", metric="loss", mode="min")
    trial = run.begin({"lr": 0.1})
    run.report(trial, {"loss": 0.5})
    run.add(Returned(trial_id=trial, attempt=1, pruned=True))
    run.ends()
    assert main(["best", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"lr": 0.1}
    assert printed.err == (
        f"holdfast: the best trial, {trial}, was stopped early: TrialPruned stopped it at "
        f"iteration 1: its function raised it\n"
        f"holdfast: loss=0.5, trial {trial} at iteration 1\n"
    )


def test_a_best_trial_that_failed_is_named_on_stderr_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RecordedExperiment(tmp_path / "run", metric="loss", mode="min")
    good, failed = run.begin({"lr": 0.1}), run.begin({"lr": 0.2})
    run.report(good, {"loss": 0.7})
    run.finish(good)
    run.report(failed, {"loss": 0.5})
    run.fail(failed)
    run.ends()
    assert main(["best", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"lr": 0.2}
    assert printed.err == (
        f"holdfast: the best trial, {failed}, failed after iteration 1: ValueError: oh no\n"
        f"holdfast: loss=0.5, trial {failed} at iteration 1\n"
    )
