"""What every launcher does, wherever its workers run.

A test file of a launcher inherits `LauncherContract` and has a fixture `launcher` that is not open
yet: each test chooses what is loaded.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from holdfast.runtime import local_launcher
from holdfast.runtime.errors import LaunchFailed
from holdfast.runtime.launcher import Launcher, WorkerHandle
from holdfast.runtime.warm import client
from holdfast.runtime.wire import LARGEST_FROM_WORKER
from tests.rig.workers.processes import PATIENCE_S, Heard, wait_for_end

MODULE = "tests.rig.workers.worker_entry"
OBEYING = f"{MODULE}:OBEYING"

DEATHS: list[tuple[list[Any], str]] = [
    (["exit", 3], "exited with status 3"),
    (["exit", None], "exited with status 0"),
    (["exit", "in words"], "exited with status 1"),
    (["leave", 7], "exited with status 7"),
    (["raise", "oh no"], "exited with status 70"),
    (["die of", signal.SIGTERM], "was killed by signal 15 (SIGTERM)"),
    (["die of", signal.SIGKILL], "was killed by signal 9 (SIGKILL), possibly out of memory"),
    (["crash"], "was killed by signal 11 (SIGSEGV)"),
]


def start(launcher: Launcher, name: str = "worker") -> tuple[WorkerHandle, Heard]:
    heard = Heard()
    return launcher.launch(name, heard), heard


async def ask(worker: WorkerHandle, heard: Heard, *message: Any) -> Any:
    """Send an order and wait for the one value of its answer."""
    worker.send([*message])
    return (await heard.message())[-1]


async def ends(worker: WorkerHandle, heard: Heard, *message: Any) -> str:
    worker.send([*message])
    return await heard.exit()


class LauncherContract:
    """Each test of this class runs for each launcher."""

    async def test_a_worker_answers_until_it_returns(self, launcher: Launcher) -> None:
        assert await launcher.open(OBEYING, b"shared") == ""
        worker, heard = start(launcher)
        assert await ask(worker, heard, "echo", {"a": [1, b"2"]}) == {"a": [1, b"2"]}
        assert await ends(worker, heard, "return") == "exited with status 0"

    async def test_an_exit_says_what_the_worker_has_used(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        await ask(worker, heard, "call", f"{MODULE}:burn_s", 0.1)
        await ends(worker, heard, "return")
        assert heard.ending is not None
        assert heard.ending.used is not None
        assert heard.ending.used.cpu_s >= 0.1

    async def test_workers_live_side_by_side(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        workers = [start(launcher, f"worker {number}") for number in range(10)]
        answers = [
            await ask(w, heard, "echo", number) for number, (w, heard) in enumerate(workers)
        ]
        assert answers == list(range(10))
        pids = {(await ask(worker, heard, "tell"))["pid"] for worker, heard in workers}
        assert len(pids) == 10

    async def test_what_a_worker_said_last_is_heard_before_its_exit(
        self, launcher: Launcher
    ) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        for number in range(1000):
            worker.send(["echo", number])
        assert await ends(worker, heard, "leave", 0) == "exited with status 0"
        assert [(await heard.message())[1] for _ in range(1000)] == list(range(1000))

    async def test_a_message_larger_than_the_socket_takes_arrives_whole(
        self,
        launcher: Launcher,
    ) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        large = os.urandom(1 << 22)
        assert await ask(worker, heard, "echo", large) == large

    async def test_a_payload_larger_than_the_socket_takes_is_loaded(
        self, launcher: Launcher
    ) -> None:
        large = os.urandom(1 << 23)
        await launcher.open(OBEYING, large)
        worker, heard = start(launcher)
        assert await ask(worker, heard, "payload") == large

    async def test_a_worker_that_sends_too_much_is_killed(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        worker.send(["flood", LARGEST_FROM_WORKER + 1])
        worker.send(["hang"])
        cause = await heard.exit()
        assert "killed by holdfast" in cause
        assert f"a frame of {LARGEST_FROM_WORKER + 1} bytes" in cause
        assert heard.unread == 0

    async def test_messages_to_a_worker_that_is_gone_go_nowhere(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        await ends(worker, heard, "return")
        worker.send(["echo", 1])
        worker.signal(signal.SIGKILL)
        other, heard_other = start(launcher)
        assert await ask(other, heard_other, "echo", 2) == 2
        assert heard.unread == 0

    async def test_the_cause_of_each_death_is_reported(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        workers = [start(launcher, f"worker {number}") for number in range(len(DEATHS))]
        told = [
            await ends(worker, heard, *order)
            for (worker, heard), (order, _) in zip(workers, DEATHS, strict=True)
        ]
        assert told == [cause for _, cause in DEATHS]

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
    async def test_a_signal_ends_a_worker_that_hangs(
        self, launcher: Launcher, signum: int
    ) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        await ask(worker, heard, "echo", 1)
        worker.send(["hang"])
        worker.signal(signum)
        assert f"signal {int(signum)}" in await heard.exit()

    async def test_sigkill_takes_along_what_the_worker_started(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        grandchild = await ask(worker, heard, "bear")
        worker.signal(signal.SIGKILL)
        await heard.exit()
        wait_for_end(grandchild)

    @pytest.mark.parametrize("order", [["return"], ["leave", 1], ["crash"]], ids=str)
    async def test_what_a_worker_started_does_not_outlive_it(
        self, launcher: Launcher, order: list[Any]
    ) -> None:
        await launcher.open(OBEYING, b"")
        worker, heard = start(launcher)
        grandchild = await ask(worker, heard, "bear")
        await ends(worker, heard, *order)
        wait_for_end(grandchild)

    async def test_closing_ends_all_workers(self, launcher: Launcher) -> None:
        await launcher.open(OBEYING, b"")
        workers = [start(launcher, f"worker {number}") for number in range(5)]
        for worker, heard in workers:
            await ask(worker, heard, "bear")
        await launcher.close()
        assert [heard.has_exited for _, heard in workers] == [True] * 5

    async def test_closing_takes_along_a_worker_that_was_ordered_a_moment_ago(
        self,
        launcher: Launcher,
    ) -> None:
        await launcher.open(OBEYING, b"")
        _, heard = start(launcher)
        await launcher.close()
        assert await heard.exit() == "was killed by holdfast: the run ended"

    async def test_a_launch_while_it_closes_is_reported_as_an_exit(
        self, launcher: Launcher
    ) -> None:
        await launcher.open(OBEYING, b"")
        await launcher.close()
        _, heard = start(launcher)
        assert await heard.exit() == "could not be started: the run is ending"

    async def test_closing_without_opening_does_nothing(self, launcher: Launcher) -> None:
        await launcher.close()

    @pytest.mark.parametrize(
        ("entry", "facts"),
        [
            ("REFUSING", ("LookupError", "the data set is not there")),
            ("UNSPEAKABLE", ("Silent", "(its __str__ raised")),
            ("MISSING", ("AttributeError", "has no attribute 'MISSING'")),
        ],
    )
    async def test_what_cannot_be_loaded_is_reported_with_its_traceback(
        self, launcher: Launcher, entry: str, facts: tuple[str, str]
    ) -> None:
        with pytest.raises(LaunchFailed) as caught:
            await launcher.open(f"{MODULE}:{entry}", b"")
        assert caught.value.type_name == facts[0]
        assert facts[1] in caught.value.message
        assert "Traceback (most recent call last)" in caught.value.traceback

    async def test_a_warm_parent_that_dies_while_loading_is_reported(
        self, launcher: Launcher
    ) -> None:
        with pytest.raises(LaunchFailed, match="the warm parent exited with status 3"):
            await launcher.open(f"{MODULE}:LEAVING", b"")

    async def test_closing_does_not_wait_for_a_load_that_never_ends(
        self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (client, local_launcher):
            monkeypatch.setattr(module, "EXIT_DEADLINE_S", 3600.0)
        opening = asyncio.ensure_future(launcher.open(f"{MODULE}:HANGING", b""))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        async with asyncio.timeout(PATIENCE_S):
            await launcher.close()

    async def test_a_fork_that_fails_is_reported_as_an_exit(
        self,
        launcher: Launcher,
    ) -> None:
        await launcher.open(f"{MODULE}:BARREN", b"")
        for name in ("first", "second"):
            _, heard = start(launcher, name)
            assert "could not be started: [Errno 11] Resource" in await heard.exit()
