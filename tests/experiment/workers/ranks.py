"""A worker group whose workers are lists of the messages they got, and its host."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from holdfast.experiment.worker.job import Assignment, GroupTerms, Machine
from holdfast.experiment.workers.group import WorkerGroup
from holdfast.experiment.workers.hosts import WorkerTimeouts
from holdfast.runtime.launcher import (
    NOTHING_SAID,
    ExitCause,
    Grant,
    Launcher,
    Listener,
    WorkerHandle,
)
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event
from holdfast.trial.trial import CheckpointRecord

WHOLE = {"index": 0, "iteration": 1, "attempt": 1, "files": 1, "size_bytes": 1,
         "time_total_s": 0.1, "upload": "ASYNC"}  # fmt: skip


class Rank(WorkerHandle):
    """One worker and its listener."""

    def __init__(self, name: str, listener: Listener) -> None:
        super().__init__(name, listener)
        self.sent: list[Any] = []
        self.signals: list[int] = []
        self.signalled, self.killed = asyncio.Event(), asyncio.Event()

    def send(self, message: list[Any]) -> None:
        self.sent.append(message)

    def kill(self, why: str) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, signum: int) -> None:
        self.signals.append(signum)
        self.signalled.set()
        if signum == signal.SIGKILL:
            self.killed.set()

    def starts(self) -> None:
        self.says(["started", 1, 40, "host", "127.0.0.1"])

    def reports(
        self, iteration: int, *, files: bool = False, upload: str = "ASYNC", **metrics: Any
    ) -> None:
        part = {**WHOLE, "iteration": iteration, "upload": upload} if files else None
        metrics = metrics or {"loss": 0.5}
        self.says(["report", 1, iteration, metrics, 1.0, 0.1, 0.1, part])

    def raises(self, message: str) -> None:
        failure = {"kind": "user", "type_name": "ValueError", "message": message}
        self.says(["raised", 1, {**failure, "traceback": f"Traceback of {message}"}])

    def says(self, message: list[Any]) -> None:
        self._listener.on_message(message)

    def ends(self, signum: int = 0, used: Used | None = None) -> None:
        cause = f"was ended by {signum}"
        self._listener.on_exit(ExitCause(cause=cause, signum=signum, used=used))

    def uses(self, used: Used) -> None:
        self._listener.on_used(used)

    @property
    def orders(self) -> list[Any]:
        """The messages after the assignment and the order to begin."""
        return [message for message in self.sent[1:] if message != ["go"]]


class Desk:
    """A controller that records its events, and its launcher."""

    def __init__(self) -> None:
        self.launcher: Launcher = self
        self.ranks: list[Rank] = []
        self.events: list[Event] = []
        self.learned: list[tuple[Sequence[str], float]] = []
        self.warnings: list[str] = []
        self.room = False
        self.blind = ""  # a node that does not see the storage
        self.shares: list[tuple[str, int, Mapping[str, list[str]]]] = []

    def has_room(self, trial_id: str) -> bool:
        return self.room

    def note_shares(self, trial_id: str, index: int, left_out: Mapping[str, list[str]]) -> None:
        self.shares.append((trial_id, index, left_out))

    async def open(self, entry: str, payload: bytes) -> str:
        return ""

    def kill(self) -> None:
        """Nothing to kill."""

    async def close(self) -> str:
        return ""

    def processes(self) -> list[Watched]:
        return []

    def refusal(self, node: str) -> str:
        return f"node {node} cannot store" if node == self.blind else ""

    def launch(
        self, name: str, listener: Listener, node: str = "", grant: Grant = NOTHING_SAID
    ) -> Rank:
        self.ranks.append(Rank(name, listener))
        return self.ranks[-1]

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        self.learned.append((modules, took_s))

    def post(self, event: Event) -> None:
        self.events.append(event)

    def show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None: ...

    def machines(self) -> list[Machine]:
        return [Machine("a", "host-a", "10.0.0.1", {"CPU": 4}, {"CPU": 1})]

    def reported(self, trial_id: str) -> list[CheckpointRecord]:
        return [
            CheckpointRecord(
                index=3, iteration=4, attempt=1, files=1, size_bytes=1, metrics={"loss": 0.5}
            )
        ]

    def on_rank_message(self, message: Message) -> None:
        raise ValueError(message)

    @property
    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


@pytest.fixture
def host() -> Desk:
    return Desk()


def assignment(trial_id: str = "t0", **fields: Any) -> Assignment:
    usual: dict[str, Any] = {
        "trial_name": trial_id,
        "dirname": trial_id,
        "attempt": 1,
        "config": {},
        "iteration": 0,
        "time_total_s": 0.0,
        "next_checkpoint": 0,
        "checkpoint": None,
        "bundles": [{}, {"CPU": 1}, {"CPU": 1}],
        "strategy": "PACK",
        "cpus": 2,
    }
    return Assignment(trial_id=trial_id, **{**usual, **fields})


def opened(
    host: Desk,
    whole: Assignment | None = None,
    *,
    timeouts: WorkerTimeouts | None = None,
    terms: GroupTerms | None = None,
) -> WorkerGroup:
    return WorkerGroup(
        host,
        whole or assignment(),
        timeouts=timeouts or WorkerTimeouts(grace_s=3600),
        terms=terms or GroupTerms(),
        warn=host.warnings.append,
    )


@pytest.fixture
async def group(host: Desk) -> WorkerGroup:
    timeouts = WorkerTimeouts(grace_s=3600, barrier_timeout_s=3600)
    made = opened(host, timeouts=timeouts)
    for rank in host.ranks:
        rank.starts()
    return made
