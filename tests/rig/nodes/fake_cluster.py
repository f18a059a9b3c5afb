"""A cluster that is this machine: its client's process runs agents itself, in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from holdfast.runtime.engines.agent_job import JOBS, Ending
from holdfast.runtime.engines.client_side import Refusal, Tell
from holdfast.runtime.engines.client_side import serve as serve_cluster
from holdfast.runtime.transport import Channel


def serve(channel: Channel) -> None:
    serve_cluster(channel, FakeCluster())


class FakeCluster:
    """Its option `members` is told as it is. `fault` is how `open` ends: by a Refusal with this
    text, or by the exit of the process with this status."""

    async def open(self, options: Mapping[str, Any], tell: Tell) -> None:
        self._agent, self._members, self._tell = options["agent"], options["members"], tell
        match options.get("fault"):
            case str() as text:
                raise Refusal(text)
            case int() as status:
                print("the cluster's library has something to say", flush=True)
                os._exit(status)
            case _:
                pass

    async def watch(self) -> None:
        self._tell(["members", self._members])
        await asyncio.get_running_loop().create_future()

    async def run(self, ticket: str, secret: bytes, member: str) -> Ending:
        loop = asyncio.get_running_loop()

        def began() -> None:
            loop.call_soon_threadsafe(self._tell, ["began", ticket])

        return await asyncio.to_thread(JOBS.run, ticket, secret, began, self._agent)

    async def adopt(self, ticket: str, member: str) -> Ending:
        return "it ended with its client", True

    async def end(self, ticket: str, why: str, grace_s: float) -> None:
        JOBS.end(ticket, why, grace_s)

    async def close(self) -> None:
        return
