"""The process of an agent: what it prints before it starts, its invitation, and its last lines."""

import asyncio
import os
import sys
from collections.abc import Sequence

import pytest

from holdfast.runtime.engines import agent_process, started
from holdfast.runtime.engines.agent_process import AgentProcess, Job, LastLines
from holdfast.runtime.engines.engine import Pipe
from tests.rig.workers.processes import PATIENCE_S, count_fds, no_process_is_left

pytestmark = [pytest.mark.anyio, pytest.mark.process]

# Without the sitecustomize and the modules of a site: a quick start.
PYTHON = (sys.executable, "-S", "-c")
SAY = f"import os, sys; os.write(1, {started.SIGN!r}); "


class Run:
    """A process, and what it came to."""

    def __init__(
        self,
        command: Sequence[str],
        invitation: bytes = b"come\n",
        *,
        over_pipe: bool = False,
        dies_with_parent: bool = False,
    ) -> None:
        self._over: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        self.pipe: Pipe | None = None
        self.has_started = False
        job = Job(
            where="node1",
            command=command,
            environ=os.environ,
            over_pipe=over_pipe,
            answer_s=PATIENCE_S,
            dies_with_parent=dies_with_parent,
        )
        self.process = AgentProcess(job, invitation, self._on_started, self._on_ended)

    def _on_started(self, pipe: Pipe | None) -> None:
        self.pipe, self.has_started = pipe, True

    def _on_ended(self, cause: str, worked: bool) -> None:
        self._over.set_result((cause, worked))

    async def end(self) -> tuple[str, bool]:
        async with asyncio.timeout(PATIENCE_S):
            return await self._over


async def test_the_invitation_is_read_by_nobody_before_the_agent() -> None:
    code = "import select; print(select.select([0], [], [], 0.2)[0], flush=True)"
    cause, worked = await Run([*PYTHON, f"{code}\n{SAY} print(sys.stdin.readline())"]).end()
    assert cause.endswith("exited with status 0. Its last lines: [] | come")
    assert worked
    assert "\n" not in cause


async def test_an_agent_that_has_not_begun_has_not_worked() -> None:
    cause, worked = await Run([*PYTHON, "print('hello')"]).end()
    assert cause.endswith("exited with status 0. Its last lines: hello")
    assert not worked
    cause, worked = await Run([*PYTHON, "pass"]).end()
    assert cause.endswith("exited with status 0. It printed nothing")


async def test_an_agent_that_exits_soon_with_an_error_has_not_worked() -> None:
    assert not (await Run([*PYTHON, f"{SAY} sys.stdin.readline(); sys.exit(1)"]).end())[1]
    # The connection failed, as ssh says.
    assert (await Run([*PYTHON, f"{SAY} sys.stdin.readline(); sys.exit(255)"]).end())[1]


async def test_an_agent_that_tried_for_long_to_reach_its_host_has_not_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_process, "_SOON_S", 0.0)
    assert (await Run([*PYTHON, f"{SAY} sys.stdin.readline(); sys.exit(1)"]).end())[1]
    exits = f"{SAY} sys.stdin.readline(); sys.exit({started.UNREACHED})"
    assert not (await Run([*PYTHON, exits]).end())[1]


async def test_a_python_without_holdfast_is_named_with_what_to_do() -> None:
    cause, _ = await Run([*PYTHON, "import holdfast.agent"]).end()
    assert "No module named 'holdfast'" in cause
    assert cause.endswith(
        "Install this version of holdfast there, or name the Python that has it (python=...)"
    )


async def test_too_much_noise_ends_it() -> None:
    cause, _ = await Run([*PYTHON, "while True: print('x' * 10_000)"]).end()
    assert "it printed more than 1,048,576 bytes before the agent started" in cause
    assert len(cause) < 4000


async def test_an_invitation_that_no_pipe_holds_ends_it() -> None:
    cause, _ = await Run([*PYTHON, f"{SAY} import time; time.sleep(300)"], b"x" * 200_000).end()
    assert "it took only 65,536 bytes of its invitation" in cause


async def test_a_pipe_is_handed_over_and_nothing_stays_open() -> None:
    with no_process_is_left():
        before = count_fds()
        run = Run([*PYTHON, f"{SAY} os.write(1, sys.stdin.readline().encode())"], over_pipe=True)
        _, worked = await run.end()
        assert worked
        assert run.pipe is not None
        assert os.read(run.pipe.reads, 100) == b"come\n"
        assert os.read(run.pipe.reads, 100) == b""
        for fd in (run.pipe.reads, run.pipe.writes):
            os.close(fd)
        assert count_fds() == before


async def test_a_command_that_cannot_run_leaves_nothing_open() -> None:
    before = count_fds()
    with pytest.raises(OSError, match="no-such-program"):
        Run(["no-such-program"])
    assert count_fds() == before


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no such signal")
async def test_a_command_that_leads_elsewhere_dies_with_this_process() -> None:
    """The guard replaces itself by the command, which keeps the signal."""
    ask = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n))"
    run = Run([*PYTHON, f"{ask}; print('signal', n.value)"], dies_with_parent=True)
    assert (await run.end())[0].endswith("signal 9")


def test_last_lines_are_few_short_and_printable() -> None:
    lines = LastLines()
    for number in range(100):
        lines.add(f"line {number}\r\n\n".encode())
    lines.add(b"\x1b[31mred\xff\n" + started.SIGN)
    assert lines.all()[:2] == ["line 91", "line 92"]
    assert lines.all()[-2:] == ["line 99", "\\x1b[31mred\ufffd"]
    lines.add(b"y" * 100_000)
    assert len("".join(lines.all())) == 2000
