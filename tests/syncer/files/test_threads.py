"""Threads for calls that may never return."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from holdfast.syncer.files import threads


@pytest.mark.anyio
async def test_a_call_returns_and_raises_what_it_does() -> None:
    assert await threads.call(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda: 1 // 0)


@pytest.mark.anyio
async def test_a_call_that_is_given_up_holds_up_no_other() -> None:
    begun, release = threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        release.wait()

    given_up = asyncio.create_task(threads.call(hangs))
    await threads.call(begun.wait)
    given_up.cancel()
    assert await threads.call(lambda: "done") == "done"
    assert threads.busy()
    release.set()


def test_a_call_without_a_loop_has_a_deadline_that_progress_puts_off() -> None:
    release, seen = threading.Event(), list[int]()

    def progress() -> int:
        seen.append(len(seen))
        if len(seen) == 4:
            release.set()
        return len(seen)

    assert threads.call_and_wait(release.wait, 0.01, progress)
    with pytest.raises(TimeoutError):
        threads.call_and_wait(threading.Event().wait, 0.01)
    with pytest.raises(ZeroDivisionError):
        threads.call_and_wait(lambda: 1 // 0, 60)


HANGS = """
import threading
from holdfast.syncer.files.threads import call_and_wait
try:
    call_and_wait(threading.Event().wait, 0.01)
except TimeoutError:
    print("given up")
"""


def test_a_process_ends_while_a_call_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "given up\n"
