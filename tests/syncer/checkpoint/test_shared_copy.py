"""The copy of a remote checkpoint that the readers of one machine share, in one process."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import cache_folder
from holdfast.syncer.errors import StorageUnavailable
from tests.syncer.checkpoint.remote import Meanwhile, left
from tests.syncer.checkpoint.remote import checkpoint as checkpoint
from tests.syncer.checkpoint.remote import folder as folder
from tests.syncer.checkpoint.remote import meanwhile as meanwhile

pytestmark = pytest.mark.usefixtures("temporary_folder")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise, as in a terminal; a shell starts background processes without that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def stalled(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A process was stopped while it downloaded the checkpoint; returns the name of its copy."""
    monkeypatch.setattr(download, "_STALLED_S", 0.05)
    with checkpoint.as_directory() as copy:
        name = Path(copy).name
    with download._gate(cache_folder() / name):
        yield name


def test_who_waits_for_a_download_that_stands_still_makes_a_copy_of_its_own(
    checkpoint: Checkpoint, stalled: str
) -> None:
    with checkpoint.as_directory() as copy:
        assert Path(copy).name != stalled
        assert (Path(copy) / "a.pt").read_bytes() == b"first"
    assert left() == [f"{stalled}.gate"]


def test_a_download_that_moves_is_waited_for(
    stalled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([1, 2, 3, 3])
    gate = download._gate(cache_folder() / stalled, 0.01, progress=lambda: next(sizes))
    with pytest.raises(BlockingIOError), gate:
        pass
    assert next(sizes, None) is None


def test_a_child_that_is_forked_during_a_download_does_not_hold_the_gate(
    checkpoint: Checkpoint, folder: Path, meanwhile: Meanwhile
) -> None:
    """As when a data loader starts while another thread downloads."""
    ends, lives = os.pipe()
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            told, _, _ = select.select([ends], [], [], 20)
            os._exit(0 if told else 1)
        children.append(child)

    meanwhile(fork)
    try:
        with checkpoint.as_directory():
            assert len(children) == 1
        with checkpoint.as_directory():
            """Otherwise a new reader would wait until the child ends."""
        assert left() == []
    finally:
        os.write(lives, b"x")
        assert os.waitpid(children[0], 0)[1] == 0


def test_without_space_another_place_is_suggested(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        cause = OSError(errno.ENOSPC, "No space left on device")
        raise StorageUnavailable("get", "model.pt", "No space left on device") from cause

    monkeypatch.setattr(download, "_download", full)
    with pytest.raises(StorageUnavailable, match="TMPDIR") as told, checkpoint.as_directory():
        pass
    assert str(cache_folder()) in str(told.value)
    assert left() == []


@pytest.mark.usefixtures("interruptible")
def test_a_notebook_that_is_interrupted_does_not_wait_for_the_download(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, cancelled = threading.Event(), threading.Event()

    class Thread(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            waits.clear()
            future = super().submit(*args, **kwargs)
            waits.set()
            return future

    async def endless(*_: Any) -> None:
        waits.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(download, "_download", endless)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", Thread)

    async def cell() -> None:
        with pytest.raises(KeyboardInterrupt), checkpoint.as_directory():
            pass

    loop = asyncio.new_event_loop()  # asyncio.run would take Ctrl-C for itself, unlike a notebook
    loop.run_until_complete(cell())
    loop.close()
    assert cancelled.is_set()
    assert left() == []
