"""The commands read whatever is there, damaged or not begun, and change nothing."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.syncer.journal.journal import MAGIC
from holdfast.syncer.uploader.lock import ExperimentLock
from tests.command.commands import parsed, stamps, told


def test_a_damaged_experiment_hides_no_other_and_names_the_doctor(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "cut" / "journal" / "000000.log").write_bytes(b"no journal at all")
    out = told(capsys, "ls", store, code=1)
    assert "cut    unreadable" in out
    assert f"holdfast doctor {store}/cut" in out
    assert "ended  interrupted" in out
    assert main(["show", str(store / "cut")]) == 1
    assert "does not begin as a journal does" in capsys.readouterr().err


def with_crc(content: bytes) -> bytes:
    """A snapshot with this content, whose checksum is right."""
    body = content.partition(b'",\n')[2] if content.startswith(b'{"crc32"') else content
    return b'{"crc32": "%08x",\n' % zlib.crc32(body) + body


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda data: data[:-100], "its CRC-32 does not match"),
        (lambda data: with_crc(data.replace(b'"RUNNING"', b'"ROWING"')), "status"),
    ],
    ids=["wrong CRC", "a word"],
)
def test_a_bad_snapshot_hides_no_experiment_and_its_own_is_read_from_the_journal(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    write: Callable[[bytes], bytes],
    reason: str,
) -> None:
    sound = parsed(capsys, "ls", store)["experiments"]
    (snapshot,) = (store / "cut").glob("experiment_state-*.json")
    snapshot.write_bytes(write(snapshot.read_bytes()))
    cut, ended = parsed(capsys, "ls", store)["experiments"]
    (notice,) = cut.pop("notices")
    assert notice.startswith(f"{snapshot.name} is not used: ")
    assert reason in notice
    for entry in (cut, *sound):
        del entry["size_bytes"]
    del sound[0]["notices"]
    assert cut == sound[0]
    del ended["size_bytes"]
    assert ended == sound[1]
    out = told(capsys, "ls", store)
    assert "cut    interrupted" in out
    assert "ended  interrupted" in out
    assert f"{snapshot.name} is not used: " in out


@pytest.mark.parametrize("written", [None, b"", MAGIC, MAGIC + bytes(5)])
def test_a_run_that_ended_before_its_first_record_is_not_an_unreadable_one(
    store: Path, capsys: pytest.CaptureFixture[str], written: bytes | None
) -> None:
    journal = store / "early" / "journal"
    journal.parent.mkdir()
    if written is None:
        (journal.parent / ".lock").touch()
    else:
        journal.mkdir()
        (journal / "000000.log").write_bytes(written)
    out = told(capsys, "ls", store)
    assert "early  not begun" in out
    assert "early ended before its first record" in out.replace(f"{store}/", "")
    assert "doctor" not in out
    assert main(["show", str(store / "early")]) == 2
    assert "Start the script again" in capsys.readouterr().err
    lock = ExperimentLock(store / "early" / ".lock")
    assert "early  live" in told(capsys, "ls", store)
    lock.release()
    removed = told(capsys, "rm", "--yes", store / "early")
    assert "early  not begun" in removed
    assert "cannot be read" not in removed
    assert not (store / "early").exists()


class Trap:
    """Reports that it was unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_nothing_is_unpickled_locked_or_written(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = store / "ended"
    (path / "tuner.pkl").write_bytes(pickle.dumps(Trap()))
    held = ExperimentLock(path / ".lock")
    before = stamps(path)
    try:
        for words in (["ls"], ["show"], ["best"], ["export"], ["export", "--rows"]):
            told(capsys, *words, path)
        told(capsys, "logs", path, "2", "--error")
    finally:
        held.release()
    assert stamps(path) == before
    assert not Path("unpickled").exists()


def test_a_directory_that_no_one_may_write_is_read(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "ended").chmod(0o500)
    try:
        assert parsed(capsys, "show", store / "ended")["counts"] == {"TERMINATED": 2, "ERROR": 1}
    finally:
        (store / "ended").chmod(0o700)
