"""Only a real state of a file is sent, however it is being written."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.artifacts.scan import StableRead, file_stat, is_unchanged, read_stable
from holdfast.syncer.files.tree import NotRegular

LONG_AGO_NS = 10**18


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_bytes(b"first state")
    return made


class Writer:
    """Writes to the file after each of its first reads."""

    def __init__(self, *writes: Callable[[], object]) -> None:
        self._writes = list(writes)
        self._pread = os.pread

    def __call__(self, descriptor: int, size: int, at: int) -> bytes:
        data = self._pread(descriptor, size, at)
        if self._writes:
            self._writes.pop(0)()
        return data


def written_meanwhile(monkeypatch: pytest.MonkeyPatch, file: Path, *states: bytes) -> None:
    def write(data: bytes) -> Callable[[], object]:
        def act() -> None:
            file.write_bytes(data)
            os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS + len(states) + data[0]))

        return act

    monkeypatch.setattr(os, "pread", Writer(*map(write, states)))


def content(state: StableRead | None) -> bytes:
    assert state is not None
    return state.source if isinstance(state.source, bytes) else state.source.read_bytes()


def kept(state: StableRead | None) -> dict[str, Any]:
    assert state is not None
    data = content(state)
    assert state.checksum == hashlib.sha256(data).hexdigest()
    assert state.stat.size == len(data)
    return {"data": data, "copy": state.is_copy}


@pytest.mark.parametrize("small_bytes", [100, 1])
def test_a_file_that_stands_still_is_read_as_it_is(file: Path, small_bytes: int) -> None:
    state = read_stable(file, copies=file.parent, small_bytes=small_bytes)
    assert kept(state) == {"data": b"first state", "copy": False}
    assert state is not None
    assert not state.is_settled  # it was written a moment ago
    assert is_unchanged(file, state.stat)


def test_of_a_log_that_grows_the_part_that_was_there_is_sent(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_meanwhile(monkeypatch, file, b"first state and more")
    state = read_stable(file, copies=file.parent)
    assert kept(state) == {"data": b"first state", "copy": False}
    assert state is not None
    assert not state.is_settled


def test_a_file_that_is_overwritten_once_is_read_as_it_is_then(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_meanwhile(monkeypatch, file, b"other state")
    assert kept(read_stable(file, copies=file.parent))["data"] == b"other state"


@pytest.mark.parametrize("small_bytes", [100, 1])
def test_a_file_that_is_overwritten_all_the_time_is_kept_back(
    file: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    states = [bytes([number]) * 11 for number in range(65, 85)]
    written_meanwhile(monkeypatch, file, *states)
    assert read_stable(file, copies=file.parent, small_bytes=small_bytes) is None
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_of_a_large_log_that_grows_a_copy_is_sent_and_removed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_meanwhile(monkeypatch, file, b"first state and more")
    state = read_stable(file, copies=file.parent, small_bytes=1)
    assert kept(state) == {"data": b"first state and more", "copy": True}
    assert state is not None
    assert not state.is_settled
    state.close()
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_no_copy_is_made_where_the_journal_would_lose_its_room(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_meanwhile(monkeypatch, file, b"first state and more")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("", (), {"free": 30})())
    assert read_stable(file, copies=file.parent, small_bytes=1) is None


def test_a_change_that_leaves_size_and_mtime_as_they_were_shows(file: Path) -> None:
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    before = file_stat(os.stat(file))
    file.write_bytes(b"other state")
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert not is_unchanged(file, before)
    file.unlink()
    assert not is_unchanged(file, before)


def test_a_pipe_in_the_place_of_a_file_holds_no_one_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegular):
        read_stable(tmp_path / "pipe", copies=tmp_path)
