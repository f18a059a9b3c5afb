"""Files for every node arrive whole, in small parts, or not at all."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.names import UnsafeName
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.delivery import (
    PART_BYTES,
    Delivered,
    SharedFile,
    at_once,
    deliver,
    unpack,
)
from holdfast.runtime.wire import Message

pytestmark = pytest.mark.anyio


class Sent:
    """A connection that ends after `parts` parts."""

    def __init__(self, parts: int = 1000) -> None:
        self.messages: list[Message] = []
        self._parts = parts

    def send(self, message: Message) -> None:
        self.messages.append(message)

    async def room(self) -> bool:
        self._parts -= 1
        return self._parts >= 0


def shared(path: Path, use: Any = "object") -> SharedFile:
    return SharedFile(name=path.name, path=str(path), use=use)


def archive(folder: Path, name: str, files: dict[str, str]) -> Path:
    with tarfile.open(folder / name, "w:gz") as packed:
        for inside, text in files.items():
            (folder / "source").write_text(text)
            packed.add(folder / "source", arcname=inside)
    return folder / name


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


async def test_a_large_object_arrives_in_small_parts(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "a1b2").write_bytes(data := os.urandom(2 * PART_BYTES + 5))
    await deliver([shared(tmp_path / "a1b2")], sent := Sent(), at_once)
    assert [len(part[1]) for part in sent.messages[1:-1]] == [PART_BYTES, PART_BYTES, 5]
    delivered = Delivered(str(scratch))
    for message in sent.messages:
        assert not (scratch / "objects" / "a1b2").exists()
        delivered.take(message)
    assert (scratch / "objects" / "a1b2").read_bytes() == data
    assert os.listdir(scratch / "objects") == ["a1b2"]
    assert (scratch / "objects" / "a1b2").stat().st_mode & 0o077 == 0


async def test_a_directory_and_modules_are_unpacked_and_imported_first(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = archive(tmp_path, "directory.tar.gz", {"train.py": "1", "data/rows": "2"})
    mine = archive(tmp_path, "modules.tar.gz", {"kelp.py": "3"})
    await deliver([shared(there, "directory"), shared(mine, "modules")], sent := Sent(), at_once)
    delivered = Delivered(str(scratch))
    for message in sent.messages:
        delivered.take(message)
    delivered.unpack()
    assert delivered.directory == str(scratch / "working_dir")
    assert (scratch / "working_dir" / "data" / "rows").read_text() == "2"
    monkeypatch.setattr(sys, "path", ["before"])
    delivered.import_from()
    assert sys.path == [str(scratch / "modules"), str(scratch / "working_dir"), "before"]
    assert os.listdir(scratch / "objects") == []


def test_an_agent_that_ends_unpacks_no_further_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.tar.gz"
    with tarfile.open(mine, "w:gz") as packed:
        for name in ("first", "second", "third"):
            (tmp_path / name).write_text(name)
            packed.add(tmp_path / name, name)
    is_over = iter([False, True]).__next__
    unpack(str(mine), str(tmp_path / "there"), is_over)
    assert os.listdir(tmp_path / "there") == ["first"]


def test_nothing_is_unpacked_once_the_folder_is_about_to_be_removed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.tar.gz"
    with tarfile.open(mine, "w:gz") as packed:
        packed.add(__file__, "module.py")
    data = mine.read_bytes()
    delivered = Delivered(str(tmp_path / "scratch"))
    delivered.take(["file", "modules.tar.gz", "modules"])
    delivered.take(["part", data])
    delivered.take(["whole", hashlib.sha256(data).digest()])
    delivered.stop(0.0)
    delivered.unpack()
    assert not (tmp_path / "scratch" / "modules").exists()


def test_a_python_before_3_11_4_which_has_no_filters_unpacks_archives_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = archive(tmp_path, "modules.tar.gz", {"kelp.py": "3"})
    unpacks = tarfile.TarFile.extractall
    monkeypatch.setattr(
        tarfile.TarFile, "extractall", lambda self, path, members: unpacks(self, path, members)
    )
    unpack(str(mine), str(tmp_path / "there"))
    assert (tmp_path / "there" / "kelp.py").read_text() == "3"


async def test_nothing_more_is_sent_once_the_connection_has_ended(tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(bytes(3 * PART_BYTES))
    await deliver([shared(tmp_path / "object")], sent := Sent(parts=1), at_once)
    assert [message[0] for message in sent.messages] == ["file", "part", "part"]


async def test_a_file_with_other_bytes_gets_no_name(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "object").write_bytes(b"bytes")
    await deliver([shared(tmp_path / "object")], sent := Sent(), at_once)
    delivered = Delivered(str(scratch))
    for message in [*sent.messages[:-1]]:
        delivered.take(message)
    with pytest.raises(WireError, match="the file object arrived with other bytes"):
        delivered.take(["whole", hashlib.sha256(b"others").digest()])
    assert not (scratch / "objects" / "object").exists()


@pytest.mark.parametrize("change", ["shorter", "longer", "other order", "one bit"])
async def test_a_transfer_that_was_cut_or_changed_gets_no_name(
    tmp_path: Path, scratch: Path, change: str
) -> None:
    (tmp_path / "object").write_bytes(os.urandom(PART_BYTES + 9))
    await deliver([shared(tmp_path / "object")], sent := Sent(), at_once)
    begin, first, second, whole = sent.messages
    damaged = bytes([first[1][0] ^ 1]) + first[1][1:]
    parts = {
        "shorter": [first],
        "longer": [first, second, second],
        "other order": [second, first],
        "one bit": [["part", damaged], second],
    }[change]
    delivered = Delivered(str(scratch))
    for message in [begin, *parts]:
        delivered.take(message)
    with pytest.raises(WireError, match="arrived with other bytes"):
        delivered.take(whole)
    assert not (scratch / "objects" / "object").exists()


@pytest.mark.parametrize(
    "message",
    [
        ["part", b"before any file"],
        ["whole", b""],
        ["file", "name", "program"],
        ["file", 5, "object"],
        ["part", "text"],
    ],
)
def test_what_is_not_a_part_of_a_file_is_refused(message: Message, scratch: Path) -> None:
    with pytest.raises(WireError, match="not a part of a file"):
        Delivered(str(scratch)).take(message)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", ""])
def test_a_name_that_is_a_path_is_refused(name: str, scratch: Path) -> None:
    with pytest.raises(UnsafeName):
        Delivered(str(scratch)).take(["file", name, "object"])
    assert os.listdir(scratch) == []


async def test_a_file_that_is_gone_is_an_error_at_the_controller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await deliver([shared(tmp_path / "gone")], Sent(), at_once)
