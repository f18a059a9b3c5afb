"""Workers of this machine, with a real warm parent: every way to run and to die."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runtime import local_launcher as launcher_module
from holdfast.runtime.errors import LaunchFailed
from holdfast.runtime.launcher import WorkerHandle
from holdfast.runtime.local_launcher import LocalLauncher
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.launcher_contract import MODULE, OBEYING, LauncherContract, ask, ends, start
from tests.rig.workers.processes import Lifeline, count_fds, wait_for_end, warm_parent

pytestmark = [pytest.mark.anyio, pytest.mark.process]


class TestLocal(LauncherContract):
    """The contract."""


# -- life ---------------------------------------------------------------------------------------


async def test_a_worker_leads_a_group_of_its_own_and_has_what_was_loaded(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(OBEYING, b"shared")
    worker, heard = start(launcher)
    facts = await ask(worker, heard, "tell")
    assert facts["pid"] == facts["group"]
    assert facts["parent"] == warm_parent().pid
    assert await ask(worker, heard, "payload") == b"shared"
    assert facts["frozen"] > 0
    assert facts["collects"] is True


async def test_what_a_worker_said_last_is_heard_also_where_its_exit_is_heard_first(
    lifeline: Lifeline,
) -> None:
    reading, writing = os.pipe()
    launcher = LocalLauncher(
        tasks=free_tasks(), environ=os.environ, inherited_fds=[lifeline.fd, writing]
    )
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    pid = (await ask(worker, heard, "tell"))["pid"]
    # From here on the loop does not run. The warm parent has many messages to send before the
    # worker does.
    _let_it_tell_all(launcher, reading, writing)
    worker.send(["echo", "last words"])
    worker.send(["leave", 0])
    wait_for_end(pid)
    _let_it_tell_all(launcher, reading, writing)
    assert await heard.exit() == "exited with status 0"
    assert await heard.message() == ["echo", "last words"]
    await launcher.close()
    os.close(reading)
    os.close(writing)


def _let_it_tell_all(launcher: LocalLauncher, reading: int, writing: int) -> None:
    """Block until the warm parent has handled all its orders so far.

    It forks in one turn and once more in a later one; so the turn before is over.
    """
    for _ in range(2):
        worker, _ = start(launcher, f"witness {len(_witnesses)}")
        _witnesses.append(worker)
        worker.send(["write", writing])
        assert os.read(reading, 1) == b"."


_witnesses: list[WorkerHandle] = []


# -- death --------------------------------------------------------------------------------------


async def test_a_signal_in_the_moment_of_the_fork_is_not_lost(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    await launcher.open("entries:SIGNALLED", b"")
    worker, heard = start(launcher)
    assert await ends(worker, heard, "return") == "was killed by signal 15 (SIGTERM)"


# -- the warm parent ----------------------------------------------------------------------------


async def test_workers_die_with_the_warm_parent_and_another_takes_its_place(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(OBEYING, b"shared")
    worker, heard = start(launcher)
    worker.confirm((await ask(worker, heard, "tell"))["pid"])
    grandchild = await ask(worker, heard, "bear")
    first = warm_parent()
    first.send_signal(signal.SIGKILL)
    assert "lost together with the process" in await heard.exit()
    wait_for_end(grandchild)
    again, heard_again = start(launcher, "again")
    assert await ask(again, heard_again, "payload") == b"shared"
    assert warm_parent().pid != first.pid


async def test_a_sigterm_to_all_of_a_job_is_for_the_controller_to_answer(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    warm_parent().send_signal(signal.SIGTERM)
    assert await ask(worker, heard, "echo", 1) == 1
    other, heard_too = start(launcher, "another")
    assert await ask(other, heard_too, "echo", 2) == 2


async def test_many_launches_wait_behind_the_load_of_a_new_warm_parent(
    launcher: LocalLauncher,
) -> None:
    """Their sockets are queued after a payload that does not fit, and must not be mixed up."""
    await launcher.open(OBEYING, bytes(1 << 23))
    warm_parent().send_signal(signal.SIGKILL)
    _, lost = start(launcher, "lost")
    await lost.exit()
    workers = [start(launcher, f"worker {number}") for number in range(20)]
    for number, (worker, heard) in enumerate(workers):
        assert await ask(worker, heard, "echo", number) == number
        await ends(worker, heard, "return")


async def test_a_warm_parent_that_does_not_answer_is_killed(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "EXIT_DEADLINE_S", 3.0)
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    await ask(worker, heard, "echo", 1)
    warm_parent().suspend()
    await launcher.close()
    assert "lost together with the process" in await heard.exit()


async def test_its_death_is_seen_though_a_child_of_it_holds_the_connection(
    launcher: LocalLauncher,
) -> None:
    with pytest.raises(LaunchFailed, match="the warm parent was killed by signal 9"):
        await launcher.open(f"{MODULE}:ABANDONING", b"")


async def test_a_warm_parent_that_cannot_be_started_is_reported(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    fds = count_fds()
    with pytest.raises(LaunchFailed, match="FileNotFoundError"):
        await launcher.open(OBEYING, b"")
    _, heard = start(launcher)
    assert "could not be started" in await heard.exit()
    assert count_fds() == fds


async def test_a_second_warm_parent_that_cannot_load_fails_its_workers(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    await launcher.open(f"{MODULE}:FAILING", os.fsencode(tmp_path / "marker"))
    warm_parent().send_signal(signal.SIGKILL)
    _, lost = start(launcher, "lost")
    await lost.exit()
    _, heard = start(launcher, "next")
    assert "could not be started: the data that workers share" in await heard.exit()


async def test_a_warm_parent_without_room_for_a_descriptor_fails_that_worker_only(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(OBEYING, b"")
    parent = warm_parent()
    usual, most = resource.prlimit(parent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (3, most))
    _, heard = start(launcher, "first")
    assert await heard.exit() == "could not be started: [Errno 24] Too many open files"
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (usual, most))
    worker, heard = start(launcher, "second")
    assert await ask(worker, heard, "echo", 1) == 1


# -- without a fork -----------------------------------------------------------------------------


async def test_where_a_native_thread_runs_workers_are_fresh_interpreters(
    launcher: LocalLauncher, lifeline: Lifeline
) -> None:
    notice = await launcher.open(f"{MODULE}:THREADED", b"shared")
    assert "Forking is not safe" in notice
    worker, heard = start(launcher)
    assert await ask(worker, heard, "payload") == b"shared"
    facts = await ask(worker, heard, "tell")
    assert facts["pid"] == facts["group"]
    assert facts["parent"] == warm_parent().pid
    assert str(lifeline.fd) in facts["fds"]
    grandchild = await ask(worker, heard, "bear")
    assert await ends(worker, heard, "exit", 4) == "exited with status 4"
    wait_for_end(grandchild)


# -- what a worker finds ------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["OBEYING", "THREADED"])
@pytest.mark.parametrize(
    ("user", "pool", "expected"), [(None, 3, "3"), ("2", 2, "2"), ("1", 1, "1")]
)
async def test_thread_limits_are_those_of_the_trial_unless_the_user_set_some(
    lifeline: Lifeline, entry: str, user: str | None, pool: int, expected: str
) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    if user is not None:
        environ["OMP_NUM_THREADS"] = user
    launcher = LocalLauncher(tasks=free_tasks(), environ=environ, inherited_fds=[lifeline.fd])
    await launcher.open(f"{MODULE}:{entry}", b"")
    worker, heard = start(launcher)
    before = (await ask(worker, heard, "tell"))["environ"]
    assert before["OMP_NUM_THREADS"] == before["MKL_NUM_THREADS"] == "1"
    for _ in range(2):  # a reused worker does it once more for its next trial
        assert await ask(worker, heard, "pool", 3.0) == pool
        after = (await ask(worker, heard, "tell"))["environ"]
        assert after["OMP_NUM_THREADS"] == expected
        assert "MKL_NUM_THREADS" not in after
    await launcher.close()


async def test_a_worker_has_no_descriptors_but_its_own(
    launcher: LocalLauncher, lifeline: Lifeline
) -> None:
    await launcher.open(OBEYING, b"")
    others = [start(launcher, f"other {number}") for number in range(5)]
    for worker, heard in others:
        await ask(worker, heard, "echo", 1)
    worker, heard = start(launcher)
    fds = (await ask(worker, heard, "tell"))["fds"]
    assert set(fds) - {"0", "1", "2"} >= {str(lifeline.fd)}
    sockets = [target for target in fds.values() if target.startswith("socket:")]
    usual = {os.readlink(f"/proc/self/fd/{fd}") for fd in (1, 2)}
    assert len(set(sockets) - usual) == 1
    assert not [target for target in fds.values() if "eventpoll" in target]


async def test_a_program_that_a_worker_starts_does_not_get_its_connection(
    launcher: LocalLauncher,
) -> None:
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher)
    facts = await ask(worker, heard, "tell")
    opened = [fd for fd, target in facts["fds"].items() if target.startswith("socket:")]
    (number,) = [fd for fd in opened if int(fd) > 2]
    assert _flags(facts["pid"], number) & os.O_CLOEXEC


def _flags(pid: int, fd: str) -> int:
    return int(Path(f"/proc/{pid}/fdinfo/{fd}").read_text().split()[3], 8)


async def test_exit_functions_of_a_worker_run_in_it_and_those_of_the_parent_do_not(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    file = tmp_path / "exits"
    payload = json.dumps({"file": str(file), "folder": str(tmp_path)}).encode()
    await launcher.open(f"{MODULE}:TIDY", payload)
    worker, heard = start(launcher)
    await ask(worker, heard, "at exit", str(file), "worker ")
    await ends(worker, heard, "return")
    assert file.read_text() == "worker "
    await launcher.close()
    assert file.read_text() == "worker parent "


async def test_temporary_folders_are_removed_by_the_process_that_made_them(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    payload = json.dumps({"file": str(tmp_path / "exits"), "folder": str(tmp_path)}).encode()
    await launcher.open(f"{MODULE}:TIDY", payload)
    (parents,) = _folders(tmp_path)
    worker, heard = start(launcher)
    workers = await ask(worker, heard, "temporary", str(tmp_path))
    assert sorted(_folders(tmp_path)) == sorted([parents, workers])
    await ends(worker, heard, "return")
    assert _folders(tmp_path) == [parents]
    await launcher.close()
    assert _folders(tmp_path) == []


def _folders(path: Path) -> list[str]:
    return [str(found) for found in path.iterdir() if found.is_dir()]


async def test_three_hundred_launches_leave_nothing(launcher: LocalLauncher) -> None:
    await launcher.open(OBEYING, b"")
    worker, heard = start(launcher, "first")
    await ends(worker, heard, "return")
    parent = warm_parent()
    before = (count_fds(), parent.num_fds())
    for batch in range(15):
        workers = [start(launcher, f"worker {batch} {number}") for number in range(20)]
        for worker, _ in workers:
            worker.send(["return"])
        for _, heard in workers:
            assert await heard.exit() == "exited with status 0"
    assert (count_fds(), parent.num_fds()) == before
    assert parent.children() == []


# -- the controller -----------------------------------------------------------------------------

CONTROLLER = '''
import asyncio, os, signal, sys
from holdfast.runtime.launcher import WorkerHandle
from holdfast.runtime.local_launcher import LocalLauncher
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.launcher_contract import MODULE, OBEYING, LauncherContract, ask, ends, start
from tests.rig.workers.processes import Heard

def holder(fd):
    """A child of the user's script: it was forked, and holds all connections open."""
    pid = os.fork()
    if pid == 0:
        os.close(fd)
        while True:
            signal.pause()
    return pid

async def main(entry, fd):
    launcher = LocalLauncher(tasks=free_tasks(), environ=os.environ, inherited_fds=[fd])
    await launcher.open(entry, b"")
    for number in range(2):
        heard = Heard()
        worker = launcher.launch(f"worker {number}", heard)
        worker.send(["bear"])
        await heard.message()
        worker.send(["hang"])
    print(holder(fd), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
'''


@pytest.mark.parametrize("entry", ["OBEYING", "THREADED"])
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_controller_that_is_killed(
    lifeline: Lifeline, entry: str, signum: int
) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, f"{MODULE}:{entry}", str(lifeline.fd)],
        pass_fds=[lifeline.fd],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert controller.stdout is not None
    holder = int(controller.stdout.readline())
    try:
        controller.send_signal(signum)
        lifeline.wait_until_all_are_gone()
    finally:
        os.kill(holder, signal.SIGKILL)
        controller.communicate()
