"""`holdfast show`, `ls` and the results say why trials stopped and what the scheduler decided."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.trial.errors import InvalidConfig
from tests.rig.runs.deciding import FollowedExperiment, asha, hyperband, population

Told = Callable[..., str]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def call(*words: str | Path) -> str:
        assert main([*map(str, words)]) == 0
        return capsys.readouterr().out

    return call


def grid(run: FollowedExperiment) -> ResultGrid:
    run.ends()
    return ResultGrid(ExperimentAnalysis(run.layout.root))


def test_the_table_says_which_trials_were_pruned_and_the_rungs_follow(
    tmp_path: Path, told: Told
) -> None:
    asha(tmp_path / "run").ends()
    assert "run   finished  2 finished, 2 pruned  loss=0.0625" in told("ls", tmp_path)
    lines = told("show", tmp_path / "run").splitlines()
    statuses = [" ".join(line.split()[1:3]) for line in lines if line.startswith("train_")]
    assert statuses == ["finished 4", "finished 4", "pruned 1", "pruned 1"]
    at = lines.index("ASHA: the rungs, by loss")
    assert [line.split() for line in lines[at + 1 : at + 5]] == [
        ["RUNG", "REACHED", "PROMOTED", "STOPPED", "CUTOFF"],
        ["1", "4", "2", "2", "0.5"],
        ["2", "2", "2", "0", "0.25"],
        ["4", "2", "0", "0", "0.125"],
    ]


def test_json_has_the_reasons_the_rungs_and_the_takeovers(tmp_path: Path, told: Told) -> None:
    asha(tmp_path / "asha").ends()
    found: dict[str, Any] = json.loads(told("show", tmp_path / "asha", "--json"))
    assert found["stop_reasons"] == {"finished": 2, "pruned": 2}
    assert found["counts"] == {"TERMINATED": 4}
    first, second, *_ = found["trials"]
    assert (first["status"], first["stop_reason"]) == ("TERMINATED", "finished")
    assert (second["status"], second["stop_reason"]) == ("TERMINATED", "pruned")
    assert second["why"] == (
        "ASHA stopped it at iteration 1: loss=0.75 at training_iteration=1 is worse than the "
        "cutoff, 0.5"
    )
    assert found["rungs"][0] == {
        "bracket": 0, "milestone": 1, "reached": 4, "promoted": 2, "stopped": 2, "waiting": 0,
        "cutoff": 0.5,
    }  # fmt: skip
    population(tmp_path / "population").ends()
    found = json.loads(told("show", tmp_path / "population", "--json"))
    (takeover,) = found["takeovers"]
    assert (takeover["trial_id"], takeover["source"]) == ("d2a66_00001", "d2a66_00000")
    assert takeover["changes"]["lr"][0] == 0.75
    (only,) = json.loads(told("ls", tmp_path / "asha", "--json"))["experiments"]
    assert only["stop_reasons"] == {"finished": 2, "pruned": 2}


def test_brackets_and_takeovers_are_tables(tmp_path: Path, told: Told) -> None:
    hyperband(tmp_path / "run").ends()
    lines = told("show", tmp_path / "run").splitlines()
    at = lines.index("HyperBand: the rungs, by loss")
    assert lines[at + 1].split()[:3] == ["BRACKET", "RUNG", "REACHED"]
    assert [line.split()[:3] for line in lines[at + 2 : at + 5]] == [
        ["0", "1", "2"],
        ["0", "2", "1"],
        ["1", "2", "1"],
    ]
    population(tmp_path / "pbt").ends()
    lines = told("show", tmp_path / "pbt").splitlines()
    at = lines.index("PBT: 1 takeover")
    assert lines[at + 1].split() == ["TRIAL", "AT", "CONTINUES", "FROM", "CHANGES"]
    assert lines[at + 2].split()[:6] == ["00001", "2", "00000", "2", "lr", "0.75"]


def test_results_have_the_reasons_and_the_numbers(tmp_path: Path) -> None:
    results = grid(asha(tmp_path / "run"))
    assert [result.stop_reason for result in results] == [
        "finished", "pruned", "finished", "pruned",
    ]  # fmt: skip
    assert results[1].why.startswith("ASHA stopped it at iteration 1: ")
    assert list(results.get_dataframe()["stop_reason"]) == [one.stop_reason for one in results]
    assert results.to_arrow()["stop_reason"].to_pylist()[1] == "pruned"
    assert [(rung.milestone, rung.reached) for rung in results.rungs()] == [(1, 4), (2, 2), (4, 2)]


def test_what_a_scheduler_has_not_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"reached a rung of .* is PopulationBasedTraining$"):
        grid(population(tmp_path / "population")).rungs()
    with pytest.raises(InvalidConfig, match="has taken over another: its scheduler is ASHASched"):
        grid(asha(tmp_path / "asha")).takeovers()


def test_importance_says_that_there_are_too_few_trials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = grid(asha(tmp_path / "run")).importances()
    assert found.scores == {}
    assert found.note.startswith("importance of 1 parameter needs 5 trials that reported loss, an")
    assert [record.message for record in caplog.records] == [found.note]
