"""A run is found by its name after fit(), whatever the current directory is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from holdfast import tune
from holdfast.cli import main


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_run_is_found_by_its_name(
    fit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "tpe"]) == 2
    fit(train, name="tpe")
    assert main(["show", "tpe"]) == 0
    assert "tpe: finished" in capsys.readouterr().out
    assert (tmp_path / "state" / "holdfast" / "listed.json").exists()


def test_a_filesystem_of_the_script_is_not_remembered(fit: Any, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way does not matter to the run")
    given = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    fit(train, name="tpe", storage_path="below", storage_filesystem=given)
    (tmp_path / "state").unlink()
    fit(train, name="tpe2", storage_path="below", storage_filesystem=given)
    assert not (tmp_path / "state").exists()
