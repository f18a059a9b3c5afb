"""`holdfast rm`: it asks first, and removes all or nothing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.syncer.uploader.lock import ExperimentLock
from tests.command.commands import Terminal, parsed


def test_rm_shows_what_goes_and_asks_first(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store / "ended"
    assert main(["rm", str(path)]) == 2
    out, err = capsys.readouterr()
    assert re.search(rf"ended:\n  remove [0-9.]+ kB in {path}\n", out)
    assert "loss=0.1 (d2a66_00000)" in out
    assert err == "holdfast: nothing is removed: without a terminal to ask, pass --yes\n"
    for answer, code in (("\n", 1), ("no\n", 1), ("", 1), ("y\n", 0)):
        assert path.is_dir()
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert main(["rm", str(path)]) == code
        out, err = capsys.readouterr()
        assert err.startswith("Remove this for good? [y/N] ")
    assert out.splitlines()[-1].startswith("ended is removed (")
    assert sorted(os.listdir(store)) == ["cut"]


def test_rm_of_several_removes_all_or_refuses_all(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = ExperimentLock(store / "cut" / ".lock")
    try:
        assert main(["rm", "--yes", str(store / "ended"), str(store / "cut")]) == 1
        assert f"process {os.getpid()}" in capsys.readouterr().err
    finally:
        lock.release()
    assert sorted(os.listdir(store)) == ["cut", "ended"]
    done = parsed(capsys, "rm", "--yes", store / "ended", store / "cut")["removed"]
    assert [(one["name"], one["local"]) for one in done] == [
        ("ended", str(store / "ended")), ("cut", str(store / "cut")),
    ]  # fmt: skip
    assert os.listdir(store) == []
    assert main(["rm", "--yes", str(store / "ended")]) == 2


def test_rm_of_what_has_not_begun_names_the_users_own_files(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "unbegun"
    (path / "journal").mkdir(parents=True)
    for name in (".lock", ".lock-workers", "notes.txt"):
        (path / name).touch()
    (path / "data").mkdir()
    (path / "trial").mkdir()
    (path / "trial" / "stdout").touch()
    assert main(["rm", str(path)]) == 2
    assert "your own files in the folder go, too: data, notes.txt\n" in capsys.readouterr().out
    assert (path / "notes.txt").exists()
