"""Services of the controller: processes, threads, and those that are restarted."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import pytest

from holdfast.runtime import process_exits
from holdfast.runtime import service as service_module
from holdfast.runtime.service import BackgroundService, RestartingService, Service, ThreadService
from holdfast.runtime.tasks import happens
from holdfast.runtime.transport import Channel
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.processes import PATIENCE_S, Heard, Lifeline, count_fds
from tests.rig.workers.worker_entry import serve

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ENTRY = "tests.rig.workers.worker_entry:serve"


@pytest.fixture
async def heard() -> Heard:
    return Heard()


@pytest.fixture
async def service(lifeline: Lifeline, heard: Heard) -> AsyncIterator[Service]:
    service = Service(ENTRY, heard.on_message, environ=os.environ, inherited_fds=[lifeline.fd])
    yield service
    service.kill()
    await service.close()


async def ended(service: BackgroundService) -> str:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.shield(service.ended)


async def test_it_answers(service: Service, heard: Heard) -> None:
    service.send(["echo", 1])
    service.send(["tell"])
    assert await heard.message() == ["echo", 1]
    facts = (await heard.message())[1]
    assert facts["pid"] == service.pid
    assert facts["parent"] == os.getpid()
    assert facts["arguments"] == sys.argv  # users' modules may read them when they are imported
    assert not service.is_gone


async def test_a_service_that_was_killed_before_it_read_all_is_reported(
    service: Service, heard: Heard
) -> None:
    service.send(["echo", 1])
    await heard.message()
    os.kill(service.pid, signal.SIGSTOP)
    service.send(["echo", 2])
    service.kill()
    assert await ended(service) == ""


async def test_a_service_that_dies_is_reported_with_its_status(
    service: Service, heard: Heard
) -> None:
    service.send(["leave", 3])
    assert await ended(service) == ""
    assert await service.gone() == "exited with status 3"
    service.send(["echo", 1])
    assert heard.unread == 0


async def test_a_service_that_says_what_is_not_a_message_is_reported(service: Service) -> None:
    service.send(["flood", 1])
    service.send(["echo", None])
    assert "must be a list" in await ended(service)


async def test_nothing_stays_open_after_it(lifeline: Lifeline) -> None:
    fds = count_fds()
    service = Service(ENTRY, print, environ=os.environ, inherited_fds=[lifeline.fd])
    await service.close()
    assert count_fds() == fds


async def test_one_that_cannot_be_started_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    fds = count_fds()
    with pytest.raises(FileNotFoundError):
        Service(ENTRY, print, environ=os.environ)
    assert count_fds() == fds


CONTROLLER = f"""
import asyncio, os, sys
from holdfast.runtime.service import Service

async def main(fd):
    heard = asyncio.Event()
    service = Service({ENTRY!r}, lambda _: heard.set(), environ=os.environ, inherited_fds=[fd])
    service.send(["echo", 1])
    await heard.wait()
    service.send(["hang"])
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(int(sys.argv[1])))
"""


def test_it_does_not_outlive_a_controller_that_is_killed(lifeline: Lifeline) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(lifeline.fd)],
        pass_fds=[lifeline.fd],
        stdout=subprocess.PIPE,
        text=True,
    )
    with controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "up\n"
        controller.send_signal(signal.SIGKILL)
    lifeline.wait_until_all_are_gone()


# -- in a thread --------------------------------------------------------------------------------


async def test_a_thread_answers_like_a_process(heard: Heard) -> None:
    service = ThreadService(serve, heard.on_message, name="holdfast-echo")
    service.send(["echo", 1])
    assert await heard.message() == ["echo", 1]
    assert service.pid == os.getpid()
    await service.close()
    assert await service.gone() == ""


def fail(channel: Channel) -> None:
    channel.receive()
    raise ValueError("oh no")


async def test_a_thread_that_fails_is_reported(
    heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    service = ThreadService(fail, heard.on_message, name="holdfast-fails")
    service.send(["go"])
    assert await ended(service) == ""
    assert await service.gone() == "failed with ValueError: oh no"
    await service.close()
    assert "oh no" in capsys.readouterr().err


async def test_a_thread_that_does_not_end_is_left_to_itself(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "EXIT_DEADLINE_S", 0.01)
    may_end = threading.Event()

    def deaf(channel: Channel) -> None:
        may_end.wait()

    service = ThreadService(deaf, heard.on_message, name="holdfast-deaf")
    tasks = asyncio.all_tasks()
    await service.close()
    assert asyncio.all_tasks() == tasks
    assert "holdfast does not wait for it" in await service.gone()
    monkeypatch.undo()
    may_end.set()
    assert await service.gone() == ""


# -- started again ------------------------------------------------------------------------------


class Told:
    """The messages of a restarting service about itself."""

    def __init__(self) -> None:
        self.restarts: asyncio.Queue[str] = asyncio.Queue()
        self.again = 0
        self.given_up: list[str] = []

    def count(self) -> None:
        self.again += 1

    async def restart(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.restarts.get()


def lasting(
    lifeline: Lifeline, heard: Heard, told: Told, *, restarts: int, within_s: float = 600.0
) -> RestartingService:
    return RestartingService(
        "uploader",
        lambda: Service(ENTRY, heard.on_message, environ=os.environ, inherited_fds=[lifeline.fd]),
        tasks=free_tasks(),
        first=[["echo", "first"]],
        again=told.count,
        tell=told.restarts.put_nowait,
        given_up=told.given_up.append,
        restarts=restarts,
        within_s=within_s,
    )


async def test_one_that_died_is_started_again_with_its_first_messages(
    lifeline: Lifeline, heard: Heard
) -> None:
    told = Told()
    service = lasting(lifeline, heard, told, restarts=2)
    assert await heard.message() == ["echo", "first"]
    service.send(["leave", 1])
    assert "the uploader exited with status 1; it is started again" in await told.restart()
    assert await heard.message() == ["echo", "first"]
    service.send(["echo", "second"])
    assert await heard.message() == ["echo", "second"]
    assert told.again == 1
    await service.close()


@pytest.mark.parametrize("has_finished", [False, True])
async def test_one_that_is_slow_to_exit_is_only_told_of_if_it_had_work_left(
    lifeline: Lifeline, heard: Heard, monkeypatch: pytest.MonkeyPatch, has_finished: bool
) -> None:
    waits_s = [0.01, PATIENCE_S]  # until it is killed, and until it is gone
    monkeypatch.setattr(process_exits, "happens", lambda event, _: happens(event, waits_s.pop(0)))
    told = Told()
    service = lasting(lifeline, heard, told, restarts=1)
    assert await heard.message() == ["echo", "first"]
    os.kill(service.pid, signal.SIGSTOP)
    await service.close(has_finished=has_finished)
    assert told.restarts.qsize() == (not has_finished)
    assert service.processes() == []


async def test_one_that_keeps_dying_is_given_up(lifeline: Lifeline, heard: Heard) -> None:
    told = Told()
    service = lasting(lifeline, heard, told, restarts=1)
    for _ in range(2):
        assert await heard.message() == ["echo", "first"]
        service.send(["die of", signal.SIGKILL])
    async with asyncio.timeout(PATIENCE_S):
        assert "signal 9" in await service.ended
    assert len(told.given_up) == 1
    assert "is not started again" in told.given_up[0]
    await service.close()
