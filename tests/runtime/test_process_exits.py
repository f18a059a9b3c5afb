"""Notices of the end of a process, with a pidfd and without."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.runtime import process_exits
from holdfast.runtime.process_exits import on_end, reaped
from tests.rig.workers.processes import PATIENCE_S, count_fds

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture(params=["pidfd", "thread"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: kernels without pidfds wait in a thread."""
    if request.param == "thread":
        monkeypatch.setattr(process_exits, "_pidfd", lambda pid: None)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Ends when its stdin does, and ignores SIGTERM."""
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); sys.stdin.read(); sys.exit(5)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def hold_up_until_it_has_ended(process: subprocess.Popen[bytes]) -> None:
    """Block the loop, also until deadlines of 0.01 s are over."""
    for thread in threading.enumerate():
        if thread.name == "holdfast-exit":
            thread.join()
    if process.returncode is None:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    time.sleep(0.02)


async def test_the_end_is_reported_once_and_the_process_can_be_waited_for(
    process: subprocess.Popen[bytes],
) -> None:
    ended = asyncio.Event()
    on_end(process, ended.set)
    end(process)
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    assert process.wait() == 5


async def test_a_watch_that_was_stopped_tells_nothing(process: subprocess.Popen[bytes]) -> None:
    fds = count_fds()
    told: list[int] = []
    stop = on_end(process, lambda: told.append(1))
    stop()
    stop()
    assert count_fds() == fds
    end(process)
    await reaped(process)
    await asyncio.sleep(0)
    assert told == []


async def test_a_process_that_does_not_end_in_time_is_killed(
    process: subprocess.Popen[bytes],
) -> None:
    process.terminate()
    await reaped(process, deadline_s=0.01)
    assert process.returncode == -signal.SIGKILL


async def test_a_process_that_ended_in_time_while_this_one_was_held_up_is_not_said_to_be_killed(
    process: subprocess.Popen[bytes],
) -> None:
    """The news of its end and the deadline come in the same turn of the loop."""
    waiting = asyncio.create_task(reaped(process, deadline_s=0.01))
    await asyncio.sleep(0)
    end(process)
    hold_up_until_it_has_ended(process)
    assert await waiting == ""
    assert process.returncode == 5


async def test_nothing_stays_open(process: subprocess.Popen[bytes]) -> None:
    asyncio.get_running_loop().run_in_executor(None, int)  # a pool keeps what it needs
    fds = count_fds()
    on_end(process, lambda: None)
    await reaped(process, deadline_s=0.01)
    await asyncio.sleep(0.0)
    assert count_fds() <= fds + 1
