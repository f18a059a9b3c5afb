"""Processes that leave their worker's process group end with it all the same."""

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from anyio import to_thread

from holdfast.runtime import local_launcher as launcher_module
from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.orphans import Departures, Ended, Orphans, children
from holdfast.runtime.warm.client import LocalWorker
from tests.rig.workers.processes import PATIENCE_S, Heard, Lifeline, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.process]

MODULE = "entries"


@pytest.fixture(autouse=True)
def _entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm parent imports what the process that starts it can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def start(launcher: LocalLauncher, name: str = "worker") -> tuple[LocalWorker, Heard]:
    heard = Heard()
    return launcher.launch(name, heard), heard


async def bear(worker: LocalWorker, heard: Heard, *order: str) -> int:
    """Let the worker start a process; its process id."""
    worker.send([*order])
    born: int = (await heard.message())[-1]
    assert psutil.pid_exists(born)
    return born


# -- with workers -------------------------------------------------------------------------------

WAYS = [
    "session",
    "session without environment",
    "fork",
    "daemon",
    "daemon of a daemon",
    "with a child",
]


@pytest.mark.parametrize(
    ("entry", "order"),
    [
        ("DESERTING", ["return"]),
        ("DESERTING", ["crash"]),
        ("DESERTING", ["leave", 0]),
        ("DESERTING", ["die of", signal.SIGKILL]),
        ("SPAWNED", ["return"]),
    ],
)
async def test_what_has_left_the_group_is_gone_when_the_exit_is_reported(
    launcher: LocalLauncher, entry: str, order: list[Any]
) -> None:
    await launcher.open(f"{MODULE}:{entry}", b"")
    worker, heard = start(launcher)
    pids = [await bear(worker, heard, "popen", way) for way in WAYS]
    worker.send(order)
    await heard.exit()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_it_may_tidy_up_when_it_is_asked_to_end(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    await launcher.open(f"{MODULE}:PATIENT", b"")
    worker, heard = start(launcher)
    pid = await bear(worker, heard, "tidying", str(tmp_path / "told"))
    worker.send(["return"])
    await heard.exit()
    assert (tmp_path / "told").read_text() == "tidied"
    assert not psutil.pid_exists(pid)


async def test_one_that_does_not_listen_is_killed(launcher: LocalLauncher) -> None:
    await launcher.open(f"{MODULE}:DESERTING", b"")
    worker, heard = start(launcher)
    pid = await bear(worker, heard, "popen", "stubborn")
    worker.send(["return"])
    await heard.exit()
    assert not psutil.pid_exists(pid)


async def test_one_that_does_not_listen_keeps_no_other_worker_waiting(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    await launcher.open(f"{MODULE}:PATIENT", b"")
    worker, heard = start(launcher, "first")
    os.mkfifo(told := tmp_path / "told")
    orphan = await bear(worker, heard, "staying", str(told))
    worker.send(["return"])
    # Workers that are reaped together wait for each other's orphans. The first one was reaped
    # before its orphan was asked to end.
    async with asyncio.timeout(PATIENCE_S):
        assert await to_thread.run_sync(told.read_text, abandon_on_cancel=True) == "asked"
    other, heard_other = start(launcher, "second")
    other.send(["return"])
    await heard_other.exit()
    assert not heard.has_exited
    os.kill(orphan, signal.SIGKILL)
    await heard.exit()


async def test_it_lives_as_long_as_its_own_worker_whatever_others_do(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(f"{MODULE}:DESERTING", b"")
    worker, heard = start(launcher)
    pids = [await bear(worker, heard, "popen", way) for way in WAYS]
    other, heard_other = start(launcher, "other")
    its = [await bear(other, heard_other, "popen", way) for way in WAYS]
    other.send(["return"])
    await heard_other.exit()
    assert [pid for pid in its if psutil.pid_exists(pid)] == []
    assert psutil.STATUS_ZOMBIE not in [psutil.Process(pid).status() for pid in pids]
    worker.send(["return"])
    await heard.exit()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_closing_ends_it(launcher: LocalLauncher) -> None:
    await launcher.open(f"{MODULE}:DESERTING", b"")
    worker, heard = start(launcher)
    pids = [await bear(worker, heard, "popen", way) for way in WAYS]
    await launcher.close()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_what_a_module_started_stays_for_all_trials_and_ends_with_them(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    await launcher.open(f"{MODULE}:SERVING", os.fsencode(tmp_path / "servers"))
    servers = [int(pid) for pid in (tmp_path / "servers").read_text().split()]
    starter = psutil.Process(servers[1]).ppid()
    os.kill(starter, signal.SIGKILL)
    wait_for_end(starter)
    for name in ("first", "second"):
        worker, heard = start(launcher, name)
        await bear(worker, heard, "popen", "session")
        worker.send(["return"])
        await heard.exit()
        assert [psutil.Process(pid).status() for pid in servers] == ["sleeping", "sleeping"]
    await launcher.close()
    assert [pid for pid in servers if psutil.pid_exists(pid)] == []


async def test_one_that_holds_the_connection_of_a_lost_worker_is_not_waited_for_for_ever(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It escapes together with the warm parent that would have ended it; the trial must not
    hang."""
    monkeypatch.setattr(launcher_module, "EXIT_DEADLINE_S", 0.05)
    await launcher.open(f"{MODULE}:DESERTING", b"")
    worker, heard = start(launcher)
    pid = await bear(worker, heard, "popen", "fork")
    try:
        worker.send(["tell"])
        parent = (await heard.message())[-1]["parent"]
        os.kill(parent, signal.SIGKILL)
        assert "lost together with the process" in await heard.exit()
    finally:
        os.kill(pid, signal.SIGKILL)


CONTROLLER = """
import asyncio, os, sys
from holdfast.runtime.local_launcher import LocalLauncher
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.processes import Heard

async def main(fd, servers, ways):
    launcher = LocalLauncher(tasks=free_tasks(), environ=os.environ, inherited_fds=[fd])
    await launcher.open("entries:SERVING", os.fsencode(servers))
    heard = Heard()
    worker = launcher.launch("worker", heard)
    pids = []
    for way in ways:
        worker.send(["popen", way])
        pids.append((await heard.message())[-1])
    print(*pids, open(servers).read(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_controller_that_is_killed(
    lifeline: Lifeline, tmp_path: Path, signum: int
) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(lifeline.fd), str(tmp_path / "servers"), *WAYS],
        pass_fds=[lifeline.fd],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert controller.stdout is not None
    pids = [int(word) for word in controller.stdout.readline().split()]
    assert len(pids) == len(WAYS) + 2
    try:
        controller.send_signal(signum)
        for pid in pids:
            wait_for_end(pid)
    finally:
        controller.communicate()


# -- one that cannot be ended -------------------------------------------------------------------


@pytest.fixture
def zombie() -> Iterator[int]:
    """A child in a session of its own that has ended, but is there until it is waited for."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True) as process:
        wait_for_end(process.pid)
        yield process.pid


def test_who_is_in_the_group_of_this_process_ends_with_it_and_is_let_be() -> None:
    others = children()
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children()
        assert Orphans(others).end(10.0) == set()


def test_an_exit_is_reported_once_what_it_waits_for_was_let_be(zombie: int) -> None:
    ended, told = [Ended("first", 0), Ended("", 0)], list[tuple[str, int]]()
    departures = Departures(
        Orphans(children() - {zombie}),
        lambda: [ended.pop()] if ended else [],
        lambda one: told.append((one.worker, one.status)),
    )
    departures.reap(10.0)
    assert (told, departures.due_s) == ([], 11.0)
    departures.reap(11.0)
    assert (told, departures.due_s) == ([], 12.0)
    ended.append(Ended("second", 9))
    departures.reap(11.5)
    assert (told, departures.due_s) == ([("second", 9)], 12.0)
    departures.reap(12.0)
    assert (told, departures.due_s) == ([("second", 9), ("first", 0)], math.inf)
