"""Scripts that mount things, in a mount namespace of their own: nothing is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


@cache
def may_mount() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    unshares = subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL)
    return unshares.returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="only root on Linux may mount")


def bind(source: Path, at: Path) -> None:
    """Show a folder at a second place too, on the same device."""
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", source, at], check=True)


def tmpfs(at: Path) -> None:
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", at], check=True)


def in_own_mounts(script: Path, *arguments: str | Path) -> str:
    """What the script prints, which must succeed."""
    command = ["unshare", "--mount", sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
