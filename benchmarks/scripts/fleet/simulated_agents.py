"""Agents whose workers do nothing but report: `simulated_agents.py WORKERS COUNT [silent]`.

Reads an invitation in hex from each line of stdin. When WORKERS trials have started, prints a line
and lets each make COUNT reports; prints another line when all are acknowledged. With `silent`, the
workers report nothing, and one agent beats no more.
"""

import asyncio
import socket
import sys
import time
from typing import Any

import uvloop

from holdfast.runtime.fleet.facts import PROTOCOL
from holdfast.runtime.fleet.handshake import Invited, TlsCall, decode_invitation, python_version
from holdfast.version import VERSION

# The controller has done what belongs to the starts.
_SETTLED_S = 1.0

workers, count = int(sys.argv[1]), int(sys.argv[2])
is_silent = sys.argv[3:] == ["silent"]


class Stage:
    """All agents: their trials begin together."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Agent, str]] = []
        self.reporting = workers

    def enter(self, agent: "Agent", worker: str) -> None:
        self.waiting.append((agent, worker))
        if len(self.waiting) == workers:
            print("all trials run", flush=True)
            asyncio.get_running_loop().call_later(_SETTLED_S, self._begin)

    def _begin(self) -> None:
        if is_silent:
            self.waiting[0][0].be_silent()
            return
        for agent, worker in self.waiting:
            agent.report(worker)

    def leave(self) -> None:
        self.reporting -= 1
        if not self.reporting:
            print("all have reported", flush=True)


class Agent:
    def __init__(self, invited: Invited, stage: Stage) -> None:
        called = TlsCall(invited)
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stage = stage
        self._attempts: dict[str, list[Any]] = {}
        self._beats = True
        self._link = called.link()
        self._link.begin(self._on_message, self.over.set_result)
        self._link.send(["hello", _hello(invited, called.address)])

    def report(self, worker: str) -> None:
        attempt = self._attempts[worker]
        attempt[1] += 1
        metrics = {"loss": 0.5 * attempt[1], "acc": 0.25}
        said = ["report", attempt[0], attempt[1], metrics, time.time(), 0.01, 1.0, None]
        self._link.send(["from", worker, said])

    def be_silent(self) -> None:
        self._beats = False

    def _on_message(self, message: list[Any]) -> None:
        match message:
            case ["send", str(worker), ["run", [_, _, _, int(attempt), *_]]]:
                self._attempts[worker] = [attempt, 0]
                self._link.send(["pid", worker, 4711])
                started = ["started", attempt, 4711, socket.gethostname(), "127.0.0.1"]
                self._link.send(["from", worker, started])
                self._stage.enter(self, worker)
            case ["send", str(worker), ["reply", *_]]:
                self._on_reply(worker)
            case ["welcome", _, {"heartbeat_s": float(heartbeat_s)}]:
                self._beat(heartbeat_s)
            case ["load", _]:
                self._link.send(["loaded", ""])
                # Its keeper sees no storage, and so is asked for nothing.
                self._link.send(["answer", ["blind", "it is simulated"]])
            case ["order", ["close", *_]]:
                self._link.send(["answer", ["closed", []]])
            case ["end", _]:
                self._link.finish()
            case _:
                pass

    def _on_reply(self, worker: str) -> None:
        attempt, reported = self._attempts[worker]
        if reported < count:
            self.report(worker)
            return
        self._stage.leave()
        self._link.send(["from", worker, ["returned", attempt]])
        ending = {"cause": "exited with status 0", "signum": 0, "is_out_of_memory": False}
        self._link.send(["exit", worker, ending])

    def _beat(self, heartbeat_s: float) -> None:
        if self._beats and self._link.is_open:
            self._link.send(["heartbeat", 1 << 40])
            asyncio.get_running_loop().call_later(heartbeat_s, self._beat, heartbeat_s)


def _hello(invited: Invited, address: str) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "version": VERSION,
        "python": python_version(),
        "ticket": invited.ticket,
        "token": invited.token,
        "hostname": "simulated",
        "address": address,
        "pid": 4711,
        "resources": {},
        "gpus": [],
        "disk_free_bytes": 1 << 40,
    }


async def main() -> None:
    stage = Stage()
    agents = [Agent(decode_invitation(bytes.fromhex(line)), stage) for line in sys.stdin]
    await asyncio.wait([agent.over for agent in agents])


if __name__ == "__main__":
    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())
