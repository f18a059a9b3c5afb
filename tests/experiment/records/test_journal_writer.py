"""The journal writer: actions once something is durable, and errors that end the run."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.records import journal_writer
from holdfast.experiment.records.journal_writer import JournalWriter, NotDurable
from holdfast.runtime import process_control
from holdfast.syncer.errors import StorageError, StorageRefused
from holdfast.syncer.journal import journal as journals
from holdfast.syncer.journal.journal import Journal, read
from tests.rig.free_tasks import free_tasks


class Scribe:
    """Replaces the projector; keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []
        self.was_sent = asyncio.Event()

    def send(self, message: list[Any]) -> None:
        self.sent.append(message)
        self.was_sent.set()


class Heard:
    """The faults that a journal writer reported, and those that it survived."""

    def __init__(
        self,
        folder: Path,
        check_ownership: Callable[[], None] = lambda: None,
        disk_deadline_s: float = 0.0,
        fsync_period_s: float = 3600,
    ) -> None:
        self.faults: list[BaseException] = []
        self.warnings: list[str] = []
        self.folder = folder / "journal"
        self.scribe = Scribe()
        self.journal_writer = JournalWriter(
            Journal(self.folder),
            self.scribe,  # type: ignore[arg-type]
            tasks=free_tasks(),
            fsync_period_s=fsync_period_s,
            disk_deadline_s=disk_deadline_s,
            warn=self.warnings.append,
            check_ownership=check_ownership,
        )
        self.journal_writer.report_to(self.faults.append)

    def payloads(self) -> list[bytes]:
        return [payload for payload, _ in read(self.folder)]


def failing(monkeypatch: pytest.MonkeyPatch, times: int, error: int = errno.EIO) -> None:
    left = [times]

    def forced(descriptor: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(error, os.strerror(error))
        os.fsync(descriptor)

    monkeypatch.setattr(journals, "fdatasync_file", forced)


def test_what_a_callback_raises_is_a_fault_and_keeps_no_other_from_being_called(
    tmp_path: Path,
) -> None:
    called: list[str] = []

    def broken() -> None:
        called.append("broken")
        raise ZeroDivisionError("oh no")

    async def run() -> Heard:
        heard = Heard(tmp_path)
        heard.journal_writer.append([b"row"])
        heard.journal_writer.when_durable(broken)
        heard.journal_writer.when_durable(lambda: called.append("second"))
        await heard.journal_writer.sync()
        heard.journal_writer.when_durable(lambda: called.append("third"))
        await heard.journal_writer.sync()
        return heard

    heard = asyncio.run(run())
    assert called == ["broken", "second", "third"]
    assert [repr(fault) for fault in heard.faults] == ["ZeroDivisionError('oh no')"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ETIMEDOUT])
def test_after_an_fsync_that_failed_nothing_counts_as_durable_before_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """A network file system that gives up (ETIMEDOUT) is an answer, not silence."""
    durable: list[list[bytes]] = []
    failing(monkeypatch, times=1, error=error)

    async def run() -> Heard:
        heard = Heard(tmp_path)
        heard.journal_writer.append([b"first", b"second"])
        heard.journal_writer.when_durable(
            lambda: durable.append([(heard.folder / "000001.log").read_bytes()[-6:]])
        )
        await heard.journal_writer.sync()
        heard.journal_writer.append([b"third"])
        await heard.journal_writer.sync()
        await heard.journal_writer.close()
        return heard

    heard = asyncio.run(run())
    assert durable == [[b"second"]]
    assert heard.payloads() == [b"first", b"second", b"third"]
    assert heard.faults == []
    (warning,) = heard.warnings
    assert os.strerror(error) in warning
    assert "written again, to 000001.log" in warning


def test_a_disk_that_refuses_twice_ends_the_run_and_nothing_that_waited_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    failing(monkeypatch, times=2)

    async def run() -> Heard:
        heard = Heard(tmp_path)
        heard.journal_writer.append([b"row"])
        heard.journal_writer.when_durable(lambda: done.append(1))
        await heard.journal_writer.sync()
        await heard.journal_writer.sync()
        await heard.journal_writer.close()
        return heard

    heard = asyncio.run(run())
    assert done == []
    (fault,) = heard.faults
    assert isinstance(fault, NotDurable)
    assert "Input/output error" in str(fault)


def test_an_experiment_that_is_not_ours_any_more_ends_the_run(tmp_path: Path) -> None:
    def taken() -> None:
        raise StorageRefused("keep", "the lock", "somebody took it")

    async def run() -> Heard:
        heard = Heard(tmp_path, taken)
        heard.journal_writer.append([b"row"])
        heard.journal_writer.when_durable(lambda: pytest.fail("it is not ours"))
        await heard.journal_writer.sync()
        await heard.journal_writer.close()
        return heard

    (fault,) = asyncio.run(run()).faults
    assert isinstance(fault, StorageError)
    assert "somebody took it" in str(fault)


def test_the_end_waits_for_whoever_forces_the_journal_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(30)
        os.fsync(descriptor)

    monkeypatch.setattr(journals, "fdatasync_file", slow)

    async def run() -> Heard:
        heard = Heard(tmp_path)
        heard.journal_writer.append([b"row"])
        syncing = asyncio.ensure_future(heard.journal_writer.sync())
        assert await asyncio.to_thread(begun.wait, 30)
        closing = asyncio.ensure_future(heard.journal_writer.close())
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(syncing, closing)
        return heard

    heard = asyncio.run(run())
    assert (heard.faults, heard.warnings) == ([], [])
    assert [path.name for path in heard.folder.iterdir()] == ["000000.log"]


def test_a_record_that_comes_during_the_last_sync_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on, closed = (threading.Event() for _ in range(3))

    def forced(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            awaited = closed if began.is_set() else goes_on
            began.set()
            awaited.wait(60)
        os.fsync(descriptor)

    monkeypatch.setattr(journals, "fdatasync_file", forced)

    async def run() -> Heard:
        heard = Heard(tmp_path, fsync_period_s=0)
        heard.journal_writer.append([b"row"])
        closing = asyncio.ensure_future(heard.journal_writer.close())
        await asyncio.to_thread(began.wait, 60)
        heard.journal_writer.append([b"late"])
        await asyncio.sleep(0.01)  # longer than the period
        goes_on.set()
        await closing
        closed.set()
        if waiting := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(waiting, timeout=60)
        return heard

    heard = asyncio.run(run())
    assert heard.faults == []
    assert heard.payloads() == [b"row", b"late"]


def test_nothing_is_due_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record sets timers, for a sync and for the projector, and each of these sets others."""

    async def run() -> list[asyncio.TimerHandle]:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        at = loop.call_at

        def call_at(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            timers.append(at(*args, **kwargs))
            return timers[-1]

        monkeypatch.setattr(loop, "call_at", call_at)  # which call_later calls, too
        heard = Heard(tmp_path)
        for _ in range(2):
            heard.journal_writer.append([b"row"])
            await heard.journal_writer.sync()
            heard.journal_writer.resend_state()
        heard.journal_writer.append([b"row"])
        await heard.journal_writer.close()
        return timers

    timers = asyncio.run(run())
    assert len(timers) >= 6
    assert all(timer.cancelled() for timer in timers)


@pytest.mark.parametrize("is_hurried", [False, True])
def test_a_disk_that_does_not_answer_ends_the_run_and_no_one_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hurried: bool
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[int] = []

    def silent(descriptor: int) -> None:
        begun.set()
        may_end.wait()

    monkeypatch.setattr(journals, "fdatasync_file", silent)

    async def run() -> Heard:
        heard = Heard(tmp_path, disk_deadline_s=0.0 if is_hurried else 0.01)
        heard.journal_writer.append([b"row"])
        heard.journal_writer.when_durable(lambda: done.append(1))
        syncing = asyncio.ensure_future(heard.journal_writer.sync())
        assert await asyncio.to_thread(begun.wait, 30)
        if is_hurried:
            heard.journal_writer.hurry(0.01)
        await syncing
        await heard.journal_writer.sync()
        await heard.journal_writer.close()
        return heard

    try:
        heard = asyncio.run(run())
    finally:
        may_end.set()
    (fault,) = heard.faults
    assert isinstance(fault, NotDurable)
    assert "the disk has not answered for 0.01 s" in str(fault)
    assert done == []
    assert heard.payloads() == [b"row"]


def test_the_time_in_which_a_job_was_suspended_is_none_that_the_disk_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, ended = (threading.Event() for _ in range(3))
    deadline_s = 1.0

    def held(descriptor: int) -> None:
        begun.set()
        may_end.wait()

    monkeypatch.setattr(journals, "fdatasync_file", held)

    def suspended() -> None:
        """As in a stopped process, nothing runs on the loop until the deadline is over."""
        time.sleep(deadline_s)
        may_end.set()
        ended.wait()

    async def run() -> Heard:
        heard = Heard(tmp_path, check_ownership=ended.set, disk_deadline_s=deadline_s)
        heard.journal_writer.append([b"row"])
        syncing = asyncio.ensure_future(heard.journal_writer.sync())
        assert await asyncio.to_thread(begun.wait, 30)
        suspended()
        await syncing
        await heard.journal_writer.close()
        return heard

    heard = asyncio.run(run())
    assert heard.faults == []
    assert heard.payloads() == [b"row"]


def test_a_fault_that_came_before_anybody_listened_is_reported_to_who_does(tmp_path: Path) -> None:
    async def run() -> list[BaseException]:
        journal_writer = Heard(tmp_path).journal_writer
        journal_writer.report_to(lambda error: None)
        journal_writer.when_durable(lambda: 1 // 0)  # type: ignore[arg-type]
        await journal_writer.sync()
        later: list[BaseException] = []
        journal_writer.report_to(later.append)
        return later

    (fault,) = asyncio.run(run())
    assert isinstance(fault, ZeroDivisionError)


def test_a_hurry_in_the_moment_in_which_the_deadline_passes_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that was held up meets both in one turn: the disk's deadline, then a Ctrl-C."""
    may_end, deadline_s = threading.Event(), 0.05

    def silent(descriptor: int) -> None:
        may_end.wait()

    monkeypatch.setattr(journals, "fdatasync_file", silent)
    unhandled: list[dict[str, Any]] = []

    async def run() -> Heard:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        heard = Heard(tmp_path, disk_deadline_s=deadline_s)
        heard.journal_writer.append([b"row"])
        syncing = asyncio.ensure_future(heard.journal_writer.sync())
        for _ in range(3):  # then it waits for the disk
            await asyncio.sleep(0)
        waiting = heard.journal_writer._waiting
        assert waiting is not None
        due = waiting.when()
        assert due is not None
        loop.call_at(due + 0.001, heard.journal_writer.hurry, 0.01)
        loop.call_soon(time.sleep, 2 * deadline_s)
        await syncing
        await heard.journal_writer.close()
        return heard

    try:
        heard = asyncio.run(run())
    finally:
        may_end.set()
    assert unhandled == []
    assert isinstance(heard.faults[0], NotDurable)


def test_the_projector_hears_of_the_first_row_soon_and_of_those_that_follow_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_writer, "_NUDGE_S", 0.0)
    monkeypatch.setattr(journal_writer, "_NEXT_NUDGE_S", 3600.0)

    async def run() -> None:
        heard = Heard(tmp_path)
        ends = []
        for _ in range(3):
            heard.journal_writer.append([b"row"])
            ends.append(heard.journal_writer.position.offset)
            await asyncio.wait_for(heard.scribe.was_sent.wait(), 30.0)
            for _ in range(9):  # turns of the loop, in which a timer that is due fires
                await asyncio.sleep(0)
        assert heard.scribe.sent == [["upto", 0, ends[0]]]
        heard.journal_writer.append([b"row"] * 500)  # many are told at once
        assert heard.scribe.sent[1:] == [["upto", 0, heard.journal_writer.position.offset]]

    asyncio.run(run())


class LastingScribe(Scribe):
    """A projector at its end, which uses CPU time before anybody looks."""

    pid = 0
    cpu_time_s = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        self.ended.set_result("was killed")

    async def close(self, *, has_finished: bool = False) -> None:
        """It has no process."""


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_projector_is_not_killed_for_the_time_in_which_the_job_was_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    """It has written everything meanwhile, and nobody has read that yet."""
    monkeypatch.setattr(process_control, "hurry", lambda pid: None)

    async def run() -> bool:
        loop, heard = asyncio.get_running_loop(), Heard(tmp_path)
        scribe: Any = LastingScribe()
        monkeypatch.setattr(heard.journal_writer, "_projector", scribe)
        now = [loop.time()]
        monkeypatch.setattr(loop, "time", lambda: now[0])
        writer = heard.journal_writer
        finishing = asyncio.ensure_future(writer.finish(10.0, is_patient=is_patient))
        while ["close"] not in scribe.sent:
            scribe.was_sent.clear()
            await scribe.was_sent.wait()
        for seconds in (0.0, 3600.0):
            now[0] += seconds
            for _ in range(5):
                await asyncio.sleep(0)
        writer.on_projector(["done", True])
        is_written = await finishing
        await writer.close()
        return is_written

    assert asyncio.run(run())
