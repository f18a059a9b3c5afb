"""The run's socket: private, in its folder only, and unimpressed by whoever connects."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder.layout import CONTROL
from holdfast.experiment.steering.orders import Order, StopExperiment, encode
from holdfast.experiment.steering.socket import (
    MOST_CONNECTIONS,
    ControlSocket,
    Refused,
    address_in,
    keep_socket,
)
from holdfast.runtime.tasks import RunTasks
from holdfast.runtime.wire import Decoder
from holdfast.runtime.wire import encode as framed
from holdfast.syncer.files import threads

pytestmark = pytest.mark.anyio

STOP = framed(["order", "command", encode(StopExperiment())])
NOBODY = 65534
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


class Run:
    """What a run does with orders: it notes them. `refuses` or `breaks` is raised."""

    def __init__(self) -> None:
        self.performed: list[tuple[Order, str]] = []
        self.told: list[tuple[str, str]] = []
        self.error: Exception | None = None

    async def perform(self, order: Order, by: str) -> str:
        if self.error is not None:
            raise self.error
        self.performed.append((order, by))
        return "it stops"

    def tell(self, text: str, level: str) -> None:
        self.told.append((text, level))


@pytest.fixture
async def run() -> Run:
    return Run()


@pytest.fixture
async def tasks() -> AsyncIterator[RunTasks]:
    """Those of a run, which ends with the test."""
    async with RunTasks() as made:
        yield made


def connected(folder: Path) -> socket.socket:
    """The kernel lets a client connect before the run has accepted it."""
    descriptor = os.open(folder, os.O_RDONLY)
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        sock.connect(address_in(descriptor, str(folder)))
    finally:
        os.close(descriptor)
    return sock


async def answer(sock: socket.socket) -> list[Any]:
    """The run's answer; it ends the connection after it."""
    decoder, loop, found = Decoder(), asyncio.get_running_loop(), []
    async with asyncio.timeout(60):
        while data := await loop.sock_recv(sock, 1 << 16):
            found += decoder.feed(data)
    sock.close()
    (only,) = found
    return only


async def ask(folder: Path, data: bytes = STOP) -> list[Any]:
    sock = connected(folder)
    await asyncio.get_running_loop().sock_sendall(sock, data)
    return await answer(sock)


def served(folder: Path, run: Run, tasks: RunTasks, deadline_s: float = 60.0) -> ControlSocket:
    made = ControlSocket(folder, run.perform, deadline_s=deadline_s)
    tasks.start(made.serve(tasks)).add_done_callback(lambda _: made.close())
    return made


async def test_an_order_is_performed_for_the_user_that_the_kernel_names(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    keep_socket(tmp_path, run.perform, tasks, run.tell)
    facts = os.lstat(tmp_path / CONTROL)
    assert (stat.S_ISSOCK(facts.st_mode), stat.S_IMODE(facts.st_mode)) == (True, 0o600)
    assert await ask(tmp_path) == ["ok", "it stops"]
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert run.performed == [(StopExperiment(), f"{name} (command)")]
    assert run.told == []


@pytest.mark.parametrize("begins", [True, False], ids=["serving", "not yet"])
async def test_it_is_removed_with_the_tasks_of_the_run(
    tmp_path: Path, run: Run, begins: bool
) -> None:
    async with RunTasks() as tasks:
        keep_socket(tmp_path, run.perform, tasks, run.tell)
        if begins:
            await ask(tmp_path)
        assert os.listdir(tmp_path) == [CONTROL]
    assert os.listdir(tmp_path) == []


async def test_a_refusal_is_an_error_and_the_next_order_is_served(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    served(tmp_path, run, tasks)
    run.error = Refused("trial a has ended")
    assert await ask(tmp_path) == ["error", "trial a has ended"]
    run.error = None
    assert await ask(tmp_path) == ["ok", "it stops"]


async def test_a_fault_in_holdfast_ends_no_run(tmp_path: Path, run: Run, tasks: RunTasks) -> None:
    keep_socket(tmp_path, run.perform, tasks, run.tell)
    run.error = ZeroDivisionError("division by zero")
    with pytest.raises(ValueError, match="not enough values"):  # it hangs up
        await ask(tmp_path)
    ((text, level),) = run.told
    assert (level, "ZeroDivisionError" in text) == ("warning", True)
    run.error = None
    assert await ask(tmp_path) == ["ok", "it stops"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "a frame of "),
        (b"\xff\xff\xff\xff" + b"x" * 100, "a frame of 4294967295 bytes"),
        (b"\x00\x10\x00\x01", "a frame of 1048577 bytes; at most 1048576 are allowed"),
        (b"\x00\x00\x00\x01\xc1", "is not MessagePack"),
        (b"\x00\x00\x00\x01\x80", "must be a list"),
        (b"\x00\x00\x04\x00" + b"\x91" * 1024, "is not MessagePack"),
        (framed(["order"]), "an order is ['order', VIA, TABLE]"),
        (framed(["order", "telepathy", encode(StopExperiment())]), "comes from command or page"),
        (framed(["order", "command", {"order": "stop", "trials": [[]]}]), "must be text"),
        (framed(["order", "page", {"\x1b[2J": 1}]), "there is no order None"),
    ],
)
async def test_rubbish_gets_an_error(
    tmp_path: Path, run: Run, tasks: RunTasks, data: bytes, told: str
) -> None:
    served(tmp_path, run, tasks)
    kind, text = await ask(tmp_path, data)
    assert (kind, told in text, text.isprintable()) == ("error", True, True)
    assert await ask(tmp_path) == ["ok", "it stops"]
    assert (len(run.performed), run.told) == (1, [])


async def test_who_sends_nothing_or_half_an_order_is_dropped(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    served(tmp_path, run, tasks, deadline_s=0.05)
    silent, half = connected(tmp_path), connected(tmp_path)
    half.send(STOP[:-1])
    late = ["error", "no order has arrived within 0.05 s"]
    assert [await answer(silent), await answer(half)] == [late, late]
    assert run.performed == []


async def test_who_has_hung_up_changes_nothing(tmp_path: Path, run: Run, tasks: RunTasks) -> None:
    served(tmp_path, run, tasks)
    gone = connected(tmp_path)
    gone.send(STOP)
    gone.close()
    assert await ask(tmp_path) == ["ok", "it stops"]  # it was accepted after the other one
    assert len(run.performed) == 1


async def test_only_so_many_may_wait(tmp_path: Path, run: Run, tasks: RunTasks) -> None:
    served(tmp_path, run, tasks)
    several = [connected(tmp_path) for _ in range(MOST_CONNECTIONS)]
    assert await answer(connected(tmp_path)) == [
        "error",
        f"{MOST_CONNECTIONS} orders wait already. Try again later",
    ]
    for sock in several:
        sock.send(STOP)
    assert [await answer(sock) for sock in several] == [["ok", "it stops"]] * MOST_CONNECTIONS
    assert await ask(tmp_path) == ["ok", "it stops"]


AS_NOBODY = f"""
import os, socket
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
sock = socket.socket(socket.AF_UNIX)
try:
    sock.connect("{CONTROL}")  # of the current folder: no folder above it is searched
except PermissionError:
    print("denied")
else:
    sock.settimeout(60)
    print(sock.recv(1000)[4:])
"""


async def as_nobody(folder: Path) -> str:
    command = [sys.executable, "-Ic", AS_NOBODY]
    ran = threads.call(
        lambda: subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    )
    async with asyncio.timeout(60):
        return (await ran).stdout


@by_root
async def test_another_user_cannot_connect_and_is_refused_if_the_mode_was_changed(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    served(tmp_path, run, tasks)
    os.chmod(tmp_path, 0o755)
    assert await as_nobody(tmp_path) == "denied\n"
    os.chmod(tmp_path / CONTROL, 0o666)
    assert "the run is of the user root: only root and root can steer it" in await as_nobody(
        tmp_path
    )
    assert run.performed == []


def link_to_a_file(place: Path, other: Path) -> None:
    other.write_text("mine")
    place.symlink_to(other)


def link_to_nothing(place: Path, other: Path) -> None:
    place.symlink_to(other)


def link_to_a_socket(place: Path, other: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(other))
    place.symlink_to(other)


def a_file(place: Path, other: Path) -> None:
    place.write_text("mine")


def a_folder(place: Path, other: Path) -> None:
    place.mkdir()


@by_root
def another_users_socket(place: Path, other: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place))
    os.chown(place, NOBODY, NOBODY)


def everything(folder: Path) -> list[tuple[Path, int]]:
    return [(path, os.lstat(path).st_ino) for path in sorted(folder.rglob("*"))]


@pytest.mark.parametrize(
    "plant", [link_to_a_file, link_to_nothing, link_to_a_socket, a_file, a_folder]
)
async def test_what_somebody_has_put_in_its_place_is_neither_followed_nor_removed(
    tmp_path: Path, run: Run, tasks: RunTasks, plant: Callable[[Path, Path], None]
) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    plant(folder / CONTROL, other)
    before = everything(tmp_path)
    keep_socket(folder, run.perform, tasks, run.tell)
    ((text, level),) = run.told
    assert level == "info"
    assert f"{folder / CONTROL}: something else has the name of the run's socket" in text
    assert everything(tmp_path) == before


@by_root
async def test_the_socket_of_another_user_stays(tmp_path: Path, run: Run, tasks: RunTasks) -> None:
    another_users_socket(tmp_path / CONTROL, tmp_path)
    keep_socket(tmp_path, run.perform, tasks, run.tell)
    assert len(run.told) == 1
    assert os.lstat(tmp_path / CONTROL).st_uid == NOBODY


@pytest.mark.parametrize(
    ("copy", "has_socket"),
    [
        ("cp -r live copy", True),
        ("cp -a live copy", True),
        ("mkdir copy && tar cf - -C live . | tar xf - -C copy", False),
        (
            f'{sys.executable} -c \'import shutil; shutil.copytree("live", "copy", '
            f'ignore=shutil.ignore_patterns("control.sock"))\'',
            False,
        ),
        (
            f'! {sys.executable} -c \'import shutil; shutil.copytree("live", "copy")\' '
            f"2>said && grep -q 'shutil.Error.*control.sock' said",
            False,
        ),
    ],
)
async def test_a_copy_of_a_live_folder_is_whole_and_its_socket_is_replaced(
    tmp_path: Path, run: Run, tasks: RunTasks, copy: str, has_socket: bool
) -> None:
    """As docs/layout.md says."""
    live, copied = tmp_path / "live", tmp_path / "copy"
    live.mkdir()
    (live / "journal").write_text("record")
    keep_socket(live, run.perform, tasks, run.tell)
    (live / "zz").write_text("last")
    made = await asyncio.create_subprocess_shell(copy, cwd=tmp_path)
    assert await made.wait() == 0
    assert (copied / "journal").read_text() == "record"
    assert (copied / "zz").read_text() == "last"
    assert (copied / CONTROL).is_socket() is has_socket
    keep_socket(copied, run.perform, tasks, run.tell)
    assert run.told == []
    assert (copied / CONTROL).is_socket()


async def test_the_socket_of_a_killed_run_is_replaced(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / CONTROL))
    served(tmp_path, run, tasks)
    assert await ask(tmp_path) == ["ok", "it stops"]


async def test_a_path_of_any_length_will_do_and_the_folder_may_be_moved(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    folder = tmp_path / ("long" * 30) / ("name" * 30)
    folder.mkdir(parents=True)
    made = served(folder, run, tasks)
    assert await ask(folder) == ["ok", "it stops"]
    moved = folder.rename(tmp_path / "moved")
    folder.mkdir()
    assert await ask(moved) == ["ok", "it stops"]
    made.close()
    assert list(moved.iterdir()) == []


async def test_another_file_of_its_name_stays_at_the_end(
    tmp_path: Path, run: Run, tasks: RunTasks
) -> None:
    made = served(tmp_path, run, tasks)
    (tmp_path / CONTROL).unlink()
    (tmp_path / CONTROL).write_text("mine")
    made.close()
    assert (tmp_path / CONTROL).read_text() == "mine"


def forked(act: Callable[[], None]) -> int:
    """The exit status of a child that has done this."""
    child = os.fork()
    if not child:
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1]


async def test_a_forked_child_removes_nothing(tmp_path: Path, run: Run, tasks: RunTasks) -> None:
    made = served(tmp_path, run, tasks)
    assert forked(made.close) == 0
    assert await ask(tmp_path) == ["ok", "it stops"]


async def test_where_no_socket_can_be_made_one_line_says_so(run: Run, tasks: RunTasks) -> None:
    keep_socket(Path("/proc/self/task"), run.perform, tasks, run.tell)
    ((text, level),) = run.told
    assert level == "info"
    assert text.startswith("This run takes no orders (holdfast stop, pause, ...): /proc/self/task")
