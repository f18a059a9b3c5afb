"""The other end: whom it talks to, and what it says if nobody answers."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder.layout import CONTROL
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.view import ExperimentView
from holdfast.experiment.steering.orders import (
    AddConfig,
    InvalidOrder,
    Order,
    StopExperiment,
    WriteNote,
)
from holdfast.experiment.steering.socket import Refused, keep_socket, name_of
from holdfast.results import steering_client as client
from holdfast.results.reading import find
from holdfast.results.steering_client import CannotSteer, OrderRefused, send_order, why_not
from holdfast.runtime.tasks import RunTasks
from holdfast.runtime.wire import encode as framed
from holdfast.syncer.files import threads
from holdfast.syncer.uploader.lock import ExperimentLock
from tests.rig.runs.recorded import RecordedExperiment

pytestmark = pytest.mark.anyio
SHORT_S = 0.05


def located(root: Path) -> ExperimentView:
    return find(str(root), Settings.read({}), {})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    recorded = RecordedExperiment(tmp_path / "run")
    recorded.begin()
    recorded.close()
    return tmp_path / "run"


@pytest.fixture
def live(root: Path) -> Iterator[ExperimentView]:
    """An experiment that this process runs."""
    lock = ExperimentLock(root / ".lock")
    try:
        yield located(root)
    finally:
        lock.release()


@pytest.fixture
async def tasks() -> AsyncIterator[RunTasks]:
    async with RunTasks() as made:
        yield made


async def perform(order: Order, by: str) -> str:
    if isinstance(order, WriteNote):
        raise Refused(f"there is no trial {order.trial!r}")
    return f"done for {by.partition(' ')[2]}"


async def sent(
    experiment: ExperimentView, order: Order | None = None, deadline_s: float = 60.0
) -> str:
    given = order or StopExperiment()
    return await threads.call(
        lambda: send_order(experiment, given, via="page", deadline_s=deadline_s)
    )


async def fault(
    experiment: ExperimentView, order: Order | None = None, deadline_s: float = 60.0
) -> str:
    with pytest.raises(CannotSteer) as caught:
        await sent(experiment, order, deadline_s)
    return str(caught.value)


async def test_an_order_reaches_the_run_and_its_answer_comes_back(
    live: ExperimentView, root: Path, tasks: RunTasks
) -> None:
    keep_socket(root, perform, tasks, lambda text, level: None)
    assert why_not(live) == ""
    assert await sent(live) == "done for (page)"
    with pytest.raises(OrderRefused, match="there is no trial 'x'"):
        await sent(live, WriteNote(trial="x", text="plateaus"))


async def test_an_experiment_that_nobody_runs_is_not_steered(root: Path) -> None:
    told = await fault(located(root))
    assert told.startswith(f"no process runs {root}. To resume it: ")
    assert told.endswith(f"resume {root}")
    elsewhere = replace(located(root), heard_at=1e12)
    assert await fault(elsewhere) == f"another machine runs {root}: steer it there"


async def test_a_run_without_a_socket_takes_no_orders(live: ExperimentView, root: Path) -> None:
    told = await fault(live)
    assert told.startswith(f"process {os.getpid()} on ")
    assert f" runs {root}, but takes no orders: there is no {CONTROL}. " in told
    with socket.socket(socket.AF_UNIX) as sock:  # of a killed run
        sock.bind(str(root / CONTROL))
    told = await fault(live)
    assert f"but does not listen on {CONTROL}: it has just ended, or it is on another machine" in (
        told
    )


@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
async def test_what_is_no_socket_is_not_opened_or_followed(
    live: ExperimentView, root: Path, tmp_path: Path, tasks: RunTasks, kind: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    keep_socket(other, perform, tasks, lambda text, level: None)
    place = root / CONTROL
    if kind == "link":
        place.symlink_to(other / CONTROL)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.touch()
    assert await fault(
        live
    ) == f"{live.holder} runs {root}, but takes no orders: {place} is not " + ("its socket")


@pytest.mark.skipif(sys.platform != "linux", reason="needs O_PATH")
async def test_a_link_that_takes_the_place_of_the_socket_after_the_look_is_not_followed(
    live: ExperimentView, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = root / CONTROL, tmp_path / "of root"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(other))
        service.listen()
        service.setblocking(False)
        place.symlink_to(other)
        monkeypatch.setattr(client, "why_not", lambda experiment: "")
        assert f"does not listen on {CONTROL}" in await fault(live)
        with pytest.raises(BlockingIOError):  # nobody has connected
            service.accept()


async def test_another_user_is_refused_before_anything_is_sent(
    live: ExperimentView, root: Path, tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_socket(root, perform, tasks, lambda text, level: None)
    owner = name_of(os.geteuid())
    monkeypatch.setattr(client, "_is_allowed", lambda owner: False)
    told = f" runs {root} and belongs to the user {owner}: only {owner} and root can steer it"
    assert (await fault(live)).endswith(told)
    # The file may have been replaced since it was looked at: the kernel knows who listens.
    looks = iter([True, False])
    monkeypatch.setattr(client, "_is_allowed", lambda owner: next(looks))
    assert (await fault(live)).endswith(told)


def listening(root: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(root / CONTROL))
    sock.listen(1)
    return sock


async def test_a_run_that_does_not_answer_is_given_up_and_named(
    live: ExperimentView, root: Path
) -> None:
    with listening(root):
        told = await fault(live, deadline_s=SHORT_S)
        assert told.startswith(f"{live.holder} runs {root}, but did not answer within 0.05 s: it ")
        assert "it is suspended (Ctrl-Z, SIGSTOP) or very busy" in told
        assert told.endswith(f"show {root}")
        # More than the kernel keeps for it: the client cannot even send.
        large = AddConfig(config={"x": "y" * 1_000_000})
        assert "did not answer within 0.05 s" in await fault(live, large, SHORT_S)
        assert "did not answer within 0.05 s" in await fault(live, deadline_s=SHORT_S)


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 200 OK\r\n\r\n", framed(["ok"]), framed(["ok", 7]), framed(["no", ""])],
)
async def test_an_answer_that_is_none_is_an_error(
    live: ExperimentView, root: Path, data: bytes
) -> None:
    def say() -> None:
        peer, _ = sock.accept()
        with peer:
            peer.recv(1000)
            peer.send(data)

    with listening(root) as sock:
        said = threads.begin(say)
        assert "but ended the connection before it answered" in await fault(live)
        await said


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"name": "\ud800"}, "has a value that cannot be sent"),
        ({"seed": 1 << 64}, "has a value that cannot be sent"),
        ({"path": Path("x")}, "has a value that cannot be sent"),
        ({"x": "y" * (1 << 20)}, "at most 1,048,576 fit"),
    ],
)
async def test_what_cannot_be_sent_is_refused_here(
    live: ExperimentView, config: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidOrder, match=told):
        await sent(live, AddConfig(config=config))


async def test_a_folder_with_a_path_of_any_length_is_reached(
    tmp_path: Path, tasks: RunTasks
) -> None:
    root = tmp_path / ("long" * 30) / "run"
    recorded = RecordedExperiment(root)
    recorded.begin()
    recorded.close()
    lock = ExperimentLock(root / ".lock")
    keep_socket(root, perform, tasks, lambda text, level: None)
    assert stat.S_ISSOCK(os.lstat(root / CONTROL).st_mode)
    assert await sent(located(root)) == "done for (page)"
    lock.release()
