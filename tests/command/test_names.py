"""Names of experiments: every command takes them from anywhere, and a shell completes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.experiment.folder.shell import note_listed
from tests.command.commands import completed, parsed, told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "holdfast" in told(capsys, "completion", shell)


def test_commands_experiments_and_trials_are_completed(store: Path) -> None:
    assert [word.strip() for word in completed("holdfast sh", store)] == ["show"]
    assert {word.strip() for word in completed("holdfast show ", store)} >= {"cut", "ended"}
    found = [word.strip() for word in completed("holdfast logs ended d2a66_0000", store)]
    assert found == ["d2a66_00000", "d2a66_00001", "d2a66_00002"]
    assert [word.strip() for word in completed("holdfast logs ended 0 --st", store)] == [
        "--stderr"
    ]


def test_names_from_elsewhere_are_completed(store: Path, tmp_path: Path) -> None:
    def words(line: str) -> list[str]:
        return [word.strip() for word in completed(line, tmp_path / "elsewhere") if word]

    (tmp_path / "elsewhere").mkdir()
    assert words("holdfast show en") == []
    note_listed(os.environ, str(store), ["cut", "ended"])
    assert words("holdfast show en") == ["ended"]
    assert words("holdfast compare cut en") == ["ended"]
    assert words("holdfast logs ended d2a66_00001") == ["d2a66_00001"]
    note_listed(os.environ, "s3://bucket/results", ["far"])
    assert words("holdfast rm f") == ["far"]
    assert words(f"holdfast best --root {store} c") == ["cut"]


def test_a_folder_of_experiments_is_not_taken_for_one(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["show"], ["doctor", "verify"]):
        assert main([*words, str(store)]) == 2
        assert f"a folder of experiments: pass one of them (holdfast ls {store}" in (
            capsys.readouterr().err
        )


def test_a_name_that_ls_printed_is_taken_by_every_command_from_anywhere(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["show", "ended"]) == 2
    assert "there is no experiment 'ended' in the current directory" in capsys.readouterr().err
    told(capsys, "ls", store)
    path = str(store / "ended")
    assert parsed(capsys, "show", "ended")["path"] == path
    assert parsed(capsys, "best", "ended")["trial_id"] == "d2a66_00000"
    assert parsed(capsys, "doctor", "verify", "ended")["path"] == path
    assert parsed(capsys, "export", "ended", "-o", "x.csv")["path"] == path
    assert parsed(capsys, "nodes", "ended")["path"] == path
    assert parsed(capsys, "replay", "ended")["path"] == path
    assert [s["path"] for s in parsed(capsys, "compare", "ended:0", "cut")["sides"]] == [
        path,
        str(store / "cut"),
    ]
    assert main(["resume", "ended", "--trainable", "nowhere:train"]) == 2
    assert "No module named 'nowhere'" in capsys.readouterr().err
    assert parsed(capsys, "logs", "ended", "2", "--error")["trial_id"] == "d2a66_00002"
    assert main(["show", "endet"]) == 2
    assert "Similar names: ended" in capsys.readouterr().err
    monkeypatch.setenv("HOLDFAST_ROOT", str(tmp_path))
    assert main(["show", "ended"]) == 2
    assert parsed(capsys, "show", "ended", "--root", store)["path"] == path
    assert [e["name"] for e in parsed(capsys, "ls", store)["experiments"]] == ["cut", "ended"]
    monkeypatch.setenv("HOLDFAST_ROOT", str(store))
    assert [e["name"] for e in parsed(capsys, "ls")["experiments"]] == ["cut", "ended"]
    monkeypatch.delenv("HOLDFAST_ROOT")
    parsed(capsys, "ls", store / "cut")  # of one experiment: its neighbours have names, too
    assert parsed(capsys, "show", "ended")["path"] == path
