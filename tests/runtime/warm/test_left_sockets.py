"""What a controller that was killed leaves: its sockets go, everything else stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runtime import transport
from holdfast.runtime.transport import remove_left


def bound(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    return path


def test_only_the_sockets_of_a_dead_process_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, other = bound(tmp_path / "left"), bound(tmp_path / "other")
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(other)
    file.touch()
    paths = [str(path) for path in (left, link, file, tmp_path / "nothing")]
    monkeypatch.setattr(transport, "_DIES_WITHIN_S", 0.0)
    remove_left(paths, os.getpid())
    assert left.is_socket()
    with subprocess.Popen([sys.executable, "-Ic", ""]) as process:
        dead = process.pid
    remove_left(paths, dead)
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "other"]
