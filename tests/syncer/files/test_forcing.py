"""Files are sent to the disk before they are forced to it, and no refusal is lost between."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest

from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.files import forcing
from holdfast.syncer.files.forcing import BytesLost, Forcing, Unforced

_MIB = 1 << 20


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What was asked of the disk: the call, the file's name, and the end of the range."""
    calls: list[tuple[str, str, int]] = []

    def name(descriptor: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))

    def send(descriptor: int, offset: int, size: int) -> None:
        calls.append(("send", name(descriptor), offset + size))

    def wait(descriptor: int, offset: int, size: int) -> None:
        calls.append(("wait", name(descriptor), offset + size))

    monkeypatch.setattr(forcing, "send_range", send)
    monkeypatch.setattr(forcing, "wait_for_range", wait)
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: calls.append(("fsync", name(descriptor), 0))
    )
    return calls


def test_small_files_are_all_sent_before_the_first_is_forced(
    tmp_path: Path, done: list[tuple[str, str, int]]
) -> None:
    for number in range(40):
        (tmp_path / f"part-{number}").write_bytes(b"x")
    manifest.hash_directory(tmp_path)
    assert [call for call, _, _ in done] == [
        *["send"] * 32,
        *["fsync"] * 32,
        *["send"] * 8,
        *["fsync"] * 9,  # the folder, too
    ]
    assert len({name for call, name, _ in done if call == "fsync"}) == 41


def test_two_pieces_of_a_large_file_are_on_their_way_at_a_time(
    tmp_path: Path, done: list[tuple[str, str, int]]
) -> None:
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(26 * _MIB)
    manifest.hash_directory(tmp_path)
    assert [(call, end // _MIB) for call, name, end in done if name == "weights"] == [
        ("send", 8),
        ("send", 16),
        ("wait", 8),
        ("send", 24),
        ("wait", 16),
        ("send", 26),
        ("fsync", 0),
    ]


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A large file, of which the disk refuses a piece once; an fsync does not report it again."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(17 * _MIB))
    refusals = [OSError(errno.EIO, os.strerror(errno.EIO))]

    def wait(*_: int) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(forcing, "wait_for_range", wait)
    return path


def test_a_file_of_which_a_piece_was_refused_is_written_anew(refusing: Path) -> None:
    before, content = refusing.stat().st_ino, refusing.read_bytes()
    with refusing.open():  # its inode number is not reused while it is open
        manifest.write(refusing.parent)
        assert refusing.stat().st_ino != before
    assert refusing.read_bytes() == content
    manifest.verify(refusing.parent, deep=True)


def test_a_file_that_was_refused_and_not_read_to_its_end_is_lost(refusing: Path) -> None:
    unforced = Unforced()

    def breaks(file: FileIO, has_read: Callable[[int], None]) -> str:
        has_read(8 * _MIB)
        has_read(16 * _MIB)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"), Forcing(unforced) as files:
        files.read(str(refusing), breaks)
    with pytest.raises(BytesLost, match="the disk refused it"), Forcing(unforced) as files:
        files.read(str(refusing), lambda file, has_read: "its checksum now")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")
def test_linux_takes_pieces_of_a_file(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(bytes(_MIB))
        forcing.send_range(file.fileno(), 0, _MIB)
        forcing.wait_for_range(file.fileno(), 0, _MIB)
        closed = os.dup(file.fileno())
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        forcing.wait_for_range(closed, 0, _MIB)
