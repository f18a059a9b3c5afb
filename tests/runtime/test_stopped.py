"""Deadlines for stopped processes: within a message, by a signal, or in the kernel."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.errors import TuneError
from holdfast.runtime import local_launcher, process_control, process_exits
from holdfast.runtime.connection import Connection
from holdfast.runtime.launcher import KernelKills, ending_of
from holdfast.runtime.local_launcher import LocalLauncher, PendingLaunches
from holdfast.runtime.process_exits import StoppedWatch, Watched, is_stopped_now
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import encode
from tests.rig.workers.processes import PATIENCE_S, Heard

pytestmark = pytest.mark.anyio


async def happens(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await event.wait()


class Ends:
    """A connection, its messages, and the reason of its end."""

    def __init__(self, pause_s: float) -> None:
        ours, self.theirs = socket.socketpair()
        self.heard: list[list[object]] = []
        self.reason: str | None = None
        self.closed, self.any = asyncio.Event(), asyncio.Event()
        self.link = Connection(ours, self._hear, self._close, pause_s=pause_s)

    def _hear(self, message: list[object]) -> None:
        self.heard.append(message)
        self.any.set()

    def _close(self, reason: str) -> None:
        self.reason = reason
        self.closed.set()

    def end(self) -> None:
        self.link.close()
        self.theirs.close()


@pytest.mark.parametrize("sent", [1, 3, 4, 7])
async def test_who_stops_in_the_middle_of_a_message_is_given_up(sent: int) -> None:
    ends = Ends(pause_s=0.05)
    ends.theirs.send(encode(["whole"]) + encode(["half", "x" * 20])[:sent])
    await happens(ends.closed)
    assert ends.heard == [["whole"]]
    assert ends.reason == "it stopped in the middle of a message for 0.05 s"
    ends.end()


def test_a_worker_does_not_wait_for_ever_for_the_rest_of_an_answer() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours.detach(), pause_s=0.05)
    theirs.send(encode(["reply", "continue"])[:6])
    with pytest.raises(TuneError, match=r"in the middle of a message for 0.05 s"):
        channel.receive()
    channel.close()
    theirs.close()


# -- processes ------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as started:
        yield started
        os.killpg(started.pid, signal.SIGKILL)
        assert started.stdin is not None
        started.stdin.close()


async def test_what_sigkill_does_not_end_is_left_after_a_while(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a process that hangs in the kernel."""
    monkeypatch.setattr(process, "kill", lambda: None)
    told = await process_exits.reaped(process, deadline_s=0.01)
    assert f"(pid {process.pid}) still exists after SIGKILL" in told
    process.returncode = None


def test_the_kernel_says_who_is_stopped(process: subprocess.Popen[bytes]) -> None:
    assert not is_stopped_now(process.pid)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_stopped_now(process.pid)
    assert not is_stopped_now(os.getpid())


class Watch:
    """A watch over one process, with its own clock."""

    def __init__(self, deadline_s: float = 4.0) -> None:
        self.told: list[str] = []
        self.killed: list[str] = []
        self.is_stopped = True
        self.now = 0.0
        self.watch = StoppedWatch(
            deadline_s,
            lambda: [Watched(2**22, "the projector", self.killed.append)],
            self.told.append,
            lambda pid: self.is_stopped,
        )

    def look(self, after_s: float, late_s: float = 0.0) -> None:
        self.now += after_s
        self.watch.check(self.now - late_s, self.now)


async def test_who_is_stopped_is_continued_and_when_stopped_again_ended() -> None:
    watch = Watch()
    for _ in range(4):
        watch.look(1)
        assert watch.told == []
    watch.look(1)
    assert len(watch.told) == 1
    assert "the projector" in watch.told[0]
    for _ in range(4):
        watch.look(1)
        assert watch.killed == []
    watch.look(1)
    assert "again after it had been continued" in watch.killed[0]


async def test_who_is_stopped_again_long_afterwards_is_continued_again() -> None:
    watch = Watch()
    for times in (1, 2, 3):
        watch.is_stopped = True
        for _ in range(5):
            watch.look(1)
        assert len(watch.told) == times
        watch.is_stopped = False
        watch.look(100)
    assert watch.killed == []


async def test_who_reads_that_a_process_is_continued_may_stop_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A SIGCONT that came after the message would undo the second stop."""
    watch = Watch()
    told_before: list[list[str]] = []
    monkeypatch.setattr(
        process_control, "kill_group", lambda pid, signum: told_before.append(watch.told[:])
    )
    for _ in range(5):
        watch.look(1)
    assert len(watch.told) == 1
    assert told_before == [[]]


async def test_a_watch_that_was_held_up_counts_again() -> None:
    """A batch system has stopped the whole job, and continues its processes one after the
    other."""
    watch = Watch()
    watch.look(1)
    watch.look(3600, late_s=3599)
    assert watch.told == []


# -- what is reported -----------------------------------------------------------------------------


def test_our_own_sigkill_is_never_reported_as_out_of_memory() -> None:
    class Rising(KernelKills):
        def take(self) -> bool:
            return True

    status = int(signal.SIGKILL)
    ending = ending_of(status, Rising([]), "it had not ended within 10 s")
    assert ending.cause == "was killed by holdfast: it had not ended within 10 s"
    assert not ending.is_out_of_memory
    assert ending_of(status, Rising([])).is_out_of_memory


# -- launches that are not heard of ---------------------------------------------------------------


class Parent:
    """Forks, and is queried."""

    cause = ""
    pid = 2**22
    is_open = True
    is_loading = False

    def __init__(self) -> None:
        self.sent: list[list[object]] = []
        self.killed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asked = asyncio.Event()

    def send(self, message: list[object], fds: object = ()) -> None:
        self.sent.append(message)
        self.asked.set()

    def kill(self, why: str = "") -> None:
        self.killed.set_result(why)


async def test_one_that_answers_lives_however_long_its_worker_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_launcher, "ANSWER_S", 0.02)
    parent, other = Parent(), Parent()
    watched = PendingLaunches()
    watched.ordered(parent, lambda: False)
    await happens(parent.asked)
    watched.answered(1)
    watched.ordered(other, lambda: False)
    async with asyncio.timeout(PATIENCE_S):
        await other.killed  # later than the first could have been
    assert not parent.killed.done()


async def test_who_has_forked_or_still_loads_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_launcher, "ANSWER_S", 0.02)
    parent, loading, other = Parent(), Parent(), Parent()
    loading.is_loading = True
    watched = PendingLaunches()
    watched.ordered(parent, lambda: True)
    watched.ordered(loading, lambda: False)
    watched.ordered(other, lambda: False)
    async with asyncio.timeout(PATIENCE_S):
        await other.killed
    assert parent.sent == loading.sent == []
    loading.is_open = False


async def test_a_real_warm_parent_that_hangs_is_ended_and_its_workers_are_reported(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await launcher.open("tests.rig.workers.worker_entry:OBEYING", b"")
    monkeypatch.setattr(local_launcher, "ANSWER_S", 0.05)
    (parent,) = launcher.parents()
    os.kill(parent.pid, signal.SIGSTOP)
    heard = Heard()
    launcher.launch("w", heard)
    assert "which was killed by holdfast: it did not answer for 0.05 s" in await heard.exit()
