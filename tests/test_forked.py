"""What a forked child must not do for its parent, and what it must close."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import forked
from holdfast.experiment.control.watch import StopSignals
from holdfast.forked import children_end_here, close_in_children
from holdfast.runtime.connection import Connection
from holdfast.runtime.transport import Channel
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.journal import Journal, read
from holdfast.syncer.uploader.lock import ExperimentLock, LockLost

pytestmark = pytest.mark.process


@contextmanager
def child(acts: Callable[[], object]) -> Iterator[None]:
    """A child that acts, and lives until the end of the block; raises AssertionError if it
    raised."""
    ready, tells = os.pipe()
    waits, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(ends)
            acts()
            status = 0
        finally:
            os.write(tells, b".")
            os.read(waits, 1)
            os._exit(status)
    os.close(tells)
    os.close(waits)
    try:
        assert os.read(ready, 1) == b"."
        yield
    finally:
        os.close(ready)
        os.close(ends)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def nothing() -> None:
    """The child does nothing."""


@pytest.mark.parametrize(("ends", "status"), [(nothing, 0), (lambda: 1 / 0, 1), (exit, 0)])
def test_a_child_ends_where_it_leaves_the_users_code(
    ends: Callable[[], object], status: int
) -> None:
    pid, parent = 0, os.getpid()
    with children_end_here():
        pid = os.fork()
        if pid == 0:
            ends()
    assert os.getpid() == parent
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_child_ends_although_a_thread_of_its_parent_held_a_stream(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(forked, "_LAST_OUTPUT_S", 0.05)
    pid, held = 0, threading.Lock()

    class Stream(io.StringIO):
        def flush(self) -> None:
            with held:
                super().flush()

    with held:
        monkeypatch.setattr(f"sys.{name}", Stream())
        with children_end_here():
            pid = os.fork()
            if pid == 0:
                raise ValueError("only in the child")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert "ValueError: only in the child" in capfd.readouterr().err


def test_a_child_neither_keeps_the_lock_nor_gives_it_up(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / ".lock")

    def acts() -> None:
        with pytest.raises(LockLost, match="forked from its holder"):
            lock.check_ownership()
        lock.release()

    with child(acts):
        lock.check_ownership()
        lock.release()
        ExperimentLock(tmp_path / ".lock").release()


def test_a_child_closes_nothing_that_took_the_number_of_a_released_lock(tmp_path: Path) -> None:
    lock = ExperimentLock(tmp_path / ".lock")
    number = lock.fileno()
    lock.release()
    with open(tmp_path / "other", "w") as other:
        os.dup2(other.fileno(), number)
        with child(lambda: os.fstat(number)):
            pass
        if other.fileno() != number:
            os.close(number)


def test_what_was_being_closed_keeps_nothing_else_open_in_a_child() -> None:
    class Closing:
        given_up = 0

        def close_in_child(self) -> None:
            Closing.given_up += 1
            os.close(-1)

    several = [Closing() for _ in range(3)]
    for one in several:
        close_in_children(one)

    def acts() -> None:
        assert Closing.given_up == len(several)

    with child(acts):
        assert Closing.given_up == 0


def test_a_child_is_no_second_writer_of_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"1"])
    journal.rotate()
    journal.append([b"2"])

    def acts() -> None:
        with pytest.raises(StorageError, match="Bad file descriptor"):
            journal.append([b"the child's"])

    with child(acts):
        journal.append([b"3"])
        journal.close()
    assert [payload for payload, _ in read(tmp_path)] == [b"1", b"2", b"3"]


def test_connections_end_with_the_process_that_made_them() -> None:
    """Its other end must not wait for a child that does not know of it."""

    async def ends() -> None:
        ours, other = socket.socketpair()
        link = Connection(ours, lambda message: None, lambda reason: None)
        with child(lambda: link.send(["the child's"])):
            link.send(["ours"])
            link.close()
            channel = Channel(other.detach())
            assert channel.receive(timeout_s=60) == ["ours"]
            assert channel.receive(timeout_s=60) is None
            channel.close()

    asyncio.run(ends())


def test_a_child_ends_by_the_signals_that_its_parent_counts() -> None:
    with StopSignals() as signals:
        for signum in (signal.SIGTERM, signal.SIGHUP):
            pid = os.fork()
            if pid == 0:
                while True:
                    signal.pause()
            os.kill(pid, signum)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signum
        signal.raise_signal(signal.SIGTERM)
        assert signals.take() == 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
