"""What runs in a client's process: frames in, calls of the cluster's client out."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from holdfast.runtime.connection import Connection
from holdfast.runtime.engines.agent_job import Ending
from holdfast.runtime.tasks import RunTasks
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message
from holdfast.text.errors import named

_ENCRYPTED = ("tls", "wss")


def refusal(address: str, *, insecure: bool) -> str:
    """Why this cluster is refused, and what to do; "" if it is not. The path of a scheduler file
    is not: its address is checked when it is known."""
    scheme, separator, _ = address.partition("://")
    if not separator:
        if address.endswith(".json"):
            return ""
        scheme = "tcp"
    if scheme == "inproc":
        return (
            f"Dask at {address} lives inside one process, so it has no other machine. Use "
            f"holdfast.cluster.Local() instead, or LocalCluster(processes=True)"
        )
    if scheme in _ENCRYPTED or insecure:
        return ""
    return (
        f"Dask at {address} has no TLS, so everyone on its network could read the invitations of "
        f"agents and take part in the run. Start the scheduler and the workers with "
        f"`--protocol tls` and certificates (https://distributed.dask.org/en/stable/tls.html), or "
        f"allow it with insecure=True (insecure=1 in a URI)"
    )


def remedy(address: str) -> str:
    """What to do about a connection that fails with TLS; "" if it has none."""
    if address.partition("://")[0] not in _ENCRYPTED:
        return ""
    return (
        ". A scheduler with TLS needs the cluster's certificates here: pass a connected Client, "
        "or set distributed.comm.tls in Dask's configuration. One without TLS needs insecure=True "
        "(insecure=1 in a URI)"
    )


Tell = Callable[[Message], None]
# No call of a cluster's client may take longer; then the process ends, and another begins.
CALL_S = 30.0
# Parts of the time to close: then agents are killed, and the engine is told what is left.
FORCE_AFTER = 0.5
TOLD_AFTER = 0.8


class Refusal(Exception):
    """No agent can run in this cluster; the text is for the user."""


class Cluster(Protocol):
    """The client of a cluster. It tells members, and the begin and end of each agent."""

    async def open(self, options: Mapping[str, Any], tell: Tell) -> None:
        """Connect. Raises Refusal."""

    async def watch(self) -> None:
        """Tell changes of the members until cancelled."""

    async def run(self, ticket: str, secret: bytes, member: str) -> Ending:
        """Run an agent until it ends. Tells its begin."""

    async def adopt(self, ticket: str, member: str) -> Ending:
        """Wait for the end of an agent that an earlier client started."""

    async def end(self, ticket: str, why: str, grace_s: float) -> None:
        """Let an agent end by itself, and kill it after so many seconds."""

    async def close(self) -> None:
        """Disconnect."""


def serve(channel: Channel, cluster: Cluster) -> None:
    """The main function of a client's process. It ends with its connection."""
    asyncio.run(_serve(channel, cluster))


async def _serve(channel: Channel, cluster: Cluster) -> None:
    try:
        await _Attendant(channel, cluster).attend()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # Python, and the end of the loop, would wait for calls of the client that hang.
        sys.stderr.flush()
        os._exit(0)


class _Attendant:
    """Performs the engine's messages in tasks, and tells it what comes of them."""

    def __init__(self, channel: Channel, cluster: Cluster) -> None:
        self._cluster = cluster
        self._channel = channel
        self._jobs: set[str] = set()
        self._is_open = False

    async def attend(self) -> None:
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._none_left = asyncio.Event()
        sock = socket.socket(fileno=os.dup(self._channel.fileno()))
        self._connection = Connection(sock, self._on_message, self._on_closed)
        try:
            async with RunTasks() as self._tasks:
                await self._tasks.until(self._over)
        except Refusal as refusal:
            self._tell(["failed", str(refusal)])
        except Exception as error:  # the engine is told, and starts another process
            self._tell(["failed", named(error)])

    def _tell(self, message: Message) -> None:
        self._connection.send(message)

    def _on_closed(self, _: str) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _on_message(self, message: Message) -> None:
        match message:
            case ["alive"]:
                self._tell(["alive"])
            case ["output", int() as fd]:
                os.dup2(fd, 1)
                os.dup2(fd, 2)
            case ["open", dict() as options]:
                self._tasks.start(self._open(options))
            case ["start", str() as ticket, bytes() as secret, str() as member]:
                self._own(ticket, self._cluster.run(ticket, secret, member))
            case ["adopt", str() as ticket, str() as member]:
                self._own(ticket, self._cluster.adopt(ticket, member))
            case ["end", str() as ticket, str() as why, float() as grace_s]:
                self._tasks.start(self._cluster.end(ticket, why, grace_s))
            case ["close", float() as grace_s]:
                self._tasks.start(self._close(grace_s))
            case _:
                pass

    async def _open(self, options: Mapping[str, Any]) -> None:
        await self._cluster.open(options, self._tell)
        self._is_open = True
        self._tell(["open"])
        await self._cluster.watch()

    def _own(self, ticket: str, work: Coroutine[Any, Any, Ending]) -> None:
        self._jobs.add(ticket)
        self._tasks.start(self._run(ticket, work))

    async def _run(self, ticket: str, work: Coroutine[Any, Any, Ending]) -> None:
        cause, worked = await work
        self._jobs.discard(ticket)
        self._tell(["ended", ticket, cause, worked])
        if not self._jobs:
            self._none_left.set()

    async def _close(self, grace_s: float) -> None:
        """End every agent: most have already ended by their host's order."""
        for ticket in self._jobs:
            self._tasks.start(self._cluster.end(ticket, "the run ended", grace_s * FORCE_AFTER))
        self._none_left.clear()
        warning = ""
        try:
            async with asyncio.timeout(grace_s * TOLD_AFTER):
                if self._jobs:
                    await self._none_left.wait()
                if self._is_open:
                    await self._cluster.close()
        except TimeoutError:
            warning = f"not all agents ended within {grace_s:g} s"
        self._tell(["closed", warning])
        self._on_closed("")
