"""Only regular files are opened, and a FIFO blocks nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.syncer.files.tree import NotRegular, read_regular, regular_descriptor

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def make_link(path: Path) -> None:
    path.with_name("elsewhere").write_text("a secret")
    path.symlink_to(path.with_name("elsewhere"))


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": lambda path: os.mkfifo(path),
    "a symbolic link": make_link,
    "a socket": make_socket,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [os.O_RDONLY, APPEND], ids=["read", "append"])
def test_what_is_not_a_regular_file_is_refused_by_name(
    tmp_path: Path, kind: str, flags: int
) -> None:
    path = tmp_path / "result.json"
    KINDS[kind](path)
    with pytest.raises(NotRegular, match=f"it is {kind}, and holdfast .*result.json"):
        regular_descriptor(path, flags)


def test_a_folder_is_refused_as_open_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)


def test_a_regular_file_is_read_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for part in (b"one ", b"two"):
        descriptor = regular_descriptor(path, APPEND)
        os.write(descriptor, part)
        os.close(descriptor)
    assert read_regular(path) == b"one two"


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "result.json")
