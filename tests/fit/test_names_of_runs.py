"""The command finds a run by its name, and the script's modules, in any directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.shell import note_listed


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_run_is_found_by_its_name(
    fit: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", "tpe"]) == 2
    fit(train, name="in_a_test")
    assert main(["show", "in_a_test"]) == 2
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    (tmp_path / "state").write_text("a file in the way does not matter to the run")
    fit(train, name="tpe")
    (tmp_path / "state").unlink()
    fit(train, name="tpe")
    assert main(["show", "tpe"]) == 0
    assert "tpe: finished" in capsys.readouterr().out
    assert (tmp_path / "state" / "holdfast" / "listed.json").exists()


def test_a_filesystem_of_the_script_is_not_remembered(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    given = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    fit(train, name="tpe", storage_path="below", storage_filesystem=given)
    assert not (tmp_path / "state").exists()


def test_ls_without_a_path_lists_the_place_used_last_if_there_is_no_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR", "HOLDFAST_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    other = tmp_path / "other"
    other.mkdir()
    note_listed(os.environ, str(other), ["a"])
    assert main(["ls"]) == 0
    assert capsys.readouterr().out == f"There is no experiment in {other}.\n"
    usual = tmp_path / "ray_results"
    usual.mkdir()
    assert main(["ls"]) == 0
    shown = capsys.readouterr().out
    assert shown == (
        f"There is no experiment in {usual}.\n  holdfast ls {other}   # used lately, too\n"
    )
