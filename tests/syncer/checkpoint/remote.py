"""A checkpoint in the storage of an experiment that is not on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint import download, manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import cache_folder
from holdfast.syncer.files.tree import CLAIMS
from tests.syncer.conftest import Distant

NAMES = ("a.pt", "model.pt", "nested/z.pt")


def write(folder: Path, content: bytes) -> None:
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest.write(folder)


@pytest.fixture
def folder(distant: Distant) -> Path:
    """The place of a checkpoint in an experiment's storage."""
    (distant.folder / "run" / CLAIMS).mkdir(parents=True)
    (distant.folder / "run" / CLAIMS / "000001").touch()
    made = distant.folder / "run" / "trial" / "checkpoint_000000"
    write(made, b"first")
    return made


@pytest.fixture
def checkpoint(distant: Distant, folder: Path) -> Checkpoint:
    return Checkpoint.from_location(distant.location.child("run/trial/checkpoint_000000"))


def left() -> list[str]:
    return os.listdir(cache_folder())


Meanwhile = Callable[[Callable[[], None]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Do something once, after a reader has listed the files to download."""
    transfer = download._download

    def then(act: Callable[[], None]) -> None:
        pending = [act]

        async def acting(*args: Any) -> None:
            if pending:
                pending.pop()()
            await transfer(*args)

        monkeypatch.setattr(download, "_download", acting)

    return then
