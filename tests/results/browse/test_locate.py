"""Paths without an experiment, next to folders that look like one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.results.reading import ExperimentNotFound
from tests.rig.runs.recorded import RecordedExperiment


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with an exported model and a folder of results."""
    (tmp_path / "m1").mkdir()
    (tmp_path / "m1" / "params.json").write_text(json.dumps({"lr": 0.1}))
    RecordedExperiment(tmp_path / "results" / "tpe")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("has_locks", [False, True])
@pytest.mark.parametrize(
    "command",
    [["show", "results/nix"], ["logs", "results/nix", "0"], ["compare", "results/tpe:0", "x/nix"]],
)
def test_an_exported_model_makes_no_experiment_of_its_folder(
    project: Path, command: list[str], has_locks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for lock in (".lock", ".lock-workers") if has_locks else ():
        (project / lock).touch()
    assert main(command) == 2
    assert "there is no experiment at" in capsys.readouterr().err


def test_a_missing_run_names_similar_ones(project: Path) -> None:
    with pytest.raises(ExperimentNotFound, match=r"results/tpa\. Similar names: tpe$"):
        tune.load("results/tpa")
    with pytest.raises(ExperimentNotFound, match=r"results/nix\. Experiments there: tpe$"):
        tune.load("results/nix")


@pytest.mark.parametrize("command", ["repair", "verify", "gc"])
def test_the_doctor_refuses_a_folder_that_holdfast_has_not_made(
    project: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir(project))
    assert main(["doctor", command, "."]) == 2
    assert "there is no experiment at" in capsys.readouterr().err
    assert sorted(os.listdir(project)) == before


def test_the_folder_of_an_exported_model_is_free_for_a_run(project: Path) -> None:
    assert not tune.Tuner.can_restore(str(project))
