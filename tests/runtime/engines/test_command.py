"""Commands that answer, fail, hang or are missing."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import pytest

from holdfast.runtime.engines.slurm.client import Commands, last_lines
from tests.rig.workers.processes import PATIENCE_S, no_process_is_left, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
async def commands() -> AsyncIterator[Commands]:
    with no_process_is_left():
        yield Commands({"PATH": os.environ["PATH"], "NAME": "value"})


async def test_an_answer_has_all_that_was_printed(commands: Commands) -> None:
    answer = await commands.run(
        ["sh", "-c", "cat; echo $NAME; echo oh >&2"], stdin=b"x" * 200_000, deadline_s=30
    )
    assert (answer.out, answer.err) == ("x" * 200_000 + "value\n", "oh\n")
    assert (answer.fault, answer.is_late) == ("", False)
    assert commands.processes() == []


async def test_a_failure_has_its_status_and_last_lines(commands: Commands) -> None:
    answer = await commands.run(["sh", "-c", "seq 9; echo '\x1b[1mno' >&2; exit 3"], deadline_s=30)
    assert answer.told == r"exited with status 3: 6 | 7 | 8 | 9 | \x1b[1mno"


async def test_a_missing_program_fails(commands: Commands) -> None:
    answer = await commands.run(["no-such-program"], deadline_s=30)
    assert answer.told == "cannot run: No such file or directory"


async def test_a_command_that_hangs_is_killed_and_nobody_knows_what_it_did(
    commands: Commands,
) -> None:
    answer = await commands.run(["sh", "-c", "echo begun; exec sleep 1000"], deadline_s=1.0)
    assert (answer.is_late, answer.told) == (True, "did not end within 1 s: begun")


async def test_a_cancelled_command_is_killed(commands: Commands) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(commands.run(["sleep", "1000"], deadline_s=1000))
        await asyncio.sleep(0)
        (watched,) = commands.processes()
        assert watched.name == "`sleep`"
        task.cancel()
    assert commands.processes() == []


async def test_all_are_killed_at_once(commands: Commands) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(commands.run(["sleep", "1000"], deadline_s=1000))
        await asyncio.sleep(0)
        commands.kill()
    assert "SIGKILL" in task.result().fault


async def test_a_command_may_be_left_behind(commands: Commands) -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads) as file:
        os.set_inheritable(writes, True)
        commands.begin(["sh", "-c", f"echo $$ >/proc/{os.getpid()}/fd/{writes}"])
        pid = int(file.readline())
        os.close(writes)
    wait_for_end(pid)
    for thread in threading.enumerate():
        if thread.name == "holdfast-command":
            thread.join(PATIENCE_S)
    commands.begin(["no-such-program"])


def test_last_lines_fit_in_one_line() -> None:
    assert last_lines("\n".join(map(str, range(9)))) == "4 | 5 | 6 | 7 | 8"
    assert last_lines(" \n\n") == ""
