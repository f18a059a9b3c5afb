"""What waits for an uploader: checkpoints, reports that wait for them, and starts of trials."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.uploader.messages import (
    Asking,
    Check,
    Complete,
    Copied,
    Copy,
    Done,
    Download,
    Fetch,
    Find,
    Found,
    HandOver,
    LookFor,
    OfCheckpoint,
    Order,
    Reply,
    Shared,
    Unanswered,
)
from holdfast.trial.trial import (
    CheckpointRecord,
    Trial,
    TrialSpec,
    checkpoint_dirname,
    checkpoint_number,
)

# While this many checkpoints wait, report() returns only when another one is uploaded.
BACKLOG = 64

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCheckpoint:
    """A checkpoint that is not committed yet; `since` is when it was ordered.

    `orders` has the order for the uploader of each node that has a part of it, "" for the owner.
    `look_for` is the owner's order if a node is lost. `shares` are the answers of nodes that have
    uploaded their parts. `is_shared`: the owner's order to complete it follows.
    """

    since: float
    files: int
    size_bytes: int
    folder: str
    orders: Mapping[str, OfCheckpoint]
    look_for: LookFor
    shares: tuple[Shared, ...] = ()
    is_shared: bool = False

    @property
    def trial_folder(self) -> str:
        return self.folder.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A `report()` that returns once its checkpoint is in storage, or raises."""

    answer: Callable[[], None]
    refuse: Callable[[str], None]


class WaitingCheckpoints:
    """`idle` is done while no checkpoint waits. Keys are a trial's id and a number."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """`warn` is called once, when reports begin to wait."""
        self._warn = warn
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Key, WaitingCheckpoint] = {}
        self._callers: dict[Key, Caller] = {}
        self._done: dict[Key, asyncio.Future[None]] = {}
        self._held: deque[Callable[[], None]] = deque()
        self._told_backlog = False
        self.idle: asyncio.Future[None] = self._loop.create_future()
        self.idle.set_result(None)

    @property
    def has_backlog(self) -> bool:
        return len(self._waiting) >= BACKLOG

    def hold(self, answer: Callable[[], None]) -> None:
        """Call `answer` when the backlog is shorter. This slows reports down."""
        if not self._told_backlog:
            self._told_backlog = True
            self._warn(
                f"{len(self._waiting)} checkpoints are waiting for upload. report() blocks until "
                f"one is uploaded"
            )
        self._held.append(answer)

    def let_go(self) -> None:
        """Answer all that the backlog holds."""
        while self._held:
            self._held.popleft()()

    def hold_until_kept(self, key: Key, caller: Caller) -> None:
        """Answer the caller once the checkpoint is in storage, or if it cannot be."""
        self._callers[key] = caller

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def get(self, key: Key) -> WaitingCheckpoint | None:
        """The checkpoint, if it is waiting."""
        return self._waiting.get(key)

    def all(self) -> list[WaitingCheckpoint]:
        """The waiting checkpoints; another thread may call this."""
        return list(self._waiting.values())

    def at(self, node: str) -> list[WaitingCheckpoint]:
        """Those that wait for the uploader of this node; "" is the owner."""
        return [item for item in self._waiting.values() if node in item.orders]

    def add(self, key: Key, item: WaitingCheckpoint) -> None:
        if self.idle.done():
            self.idle = self._loop.create_future()
        self._waiting[key] = item

    def move_to_owner(self, node: str) -> list[WaitingCheckpoint]:
        """The node is lost: let the owner look for its checkpoints in storage. Returns these."""
        moved = {
            key: replace(item, orders={"": item.look_for})
            for key, item in self._waiting.items()
            if node in item.orders
        }
        self._waiting |= moved
        return [*moved.values()]

    def shared(self, key: Key, node: str, share: Shared) -> Complete | None:
        """The node has uploaded its share. After the last one, returns the owner's order, which
        completes the checkpoint."""
        item = self._waiting[key]
        left = {other: order for other, order in item.orders.items() if other != node}
        item = replace(item, orders=left, shares=(*item.shares, share))
        order = None
        if not left:
            order = _completing(item)
            item = replace(item, orders={"": order})
        self._waiting[key] = item
        return order

    async def done(self, key: Key) -> None:
        """Wait until the checkpoint does not wait any more. The uploader's deadlines apply."""
        if key in self._waiting:
            ended = self._done.setdefault(key, self._loop.create_future())
            await asyncio.shield(ended)

    def done_with(self, key: Key, problem: str = "") -> None:
        """Remove a checkpoint. Answers its report, and reports behind a backlog."""
        self._waiting.pop(key, None)
        caller, ended = self._callers.pop(key, None), self._done.pop(key, None)
        if caller is not None and problem:
            caller.refuse(problem)
        elif caller is not None:
            caller.answer()
        if ended is not None:
            ended.set_result(None)
        if not self._waiting and not self.idle.done():
            self.idle.set_result(None)
        while self._held and not self.has_backlog:
            self._held.popleft()()


def _completing(item: WaitingCheckpoint) -> Complete:
    """The order to complete a checkpoint of which all shares are in storage."""
    files = {name: fact for share in item.shares for name, fact in share.files.items()}
    above = {name.rpartition("/")[0] for name in files}
    folders = dict.fromkeys(name for share in item.shares for name in share.empty_folders)
    like = item.look_for
    return Complete(
        trial=like.trial,
        index=like.index,
        folder=like.folder,
        iteration=like.iteration,
        time_total_s=like.time_total_s,
        files=files,
        empty_folders=[name for name in folders if name not in above],
    )


GONE = "the node is gone"
_ANSWERS: Mapping[type, type] = {Find: Found, Copy: Copied}


class StorageQuestions:
    """Questions to storage about a trial that is about to start, and their answers.

    Each question waits as long as the uploader tries: `SyncConfig.sync_timeout` without progress.
    A question without a node goes to the owner, at the controller."""

    def __init__(
        self, send: Callable[[str, Order], None], is_there: Callable[[str], bool]
    ) -> None:
        """`send` sends an order to the uploader of a node, "" for the owner. `is_there`: whether
        this node has not left."""
        self._send = send
        self._is_there = is_there
        self._asked: dict[tuple[str, str], tuple[Asking, asyncio.Future[Any]]] = {}

    def ask_again(self, node: str = "") -> None:
        """Repeat all questions to an uploader that has replaced the previous one."""
        for (asked, _), (order, _) in self._asked.items():
            if asked == node:
                self._send(node, order)

    def fail(self, node: str, why: str) -> None:
        """The node is lost: its uploader answers no question any more."""
        for asked, ticket in list(self._asked):
            if asked == node:
                self.answer(Unanswered(ticket=ticket, why=why), node)

    async def fetch(self, spec: TrialSpec, record: CheckpointRecord, node: str = "") -> str:
        """Download a checkpoint. Returns why it is lost, "" if it is not.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"{spec.trial_id}/{record.index}"
        order = Fetch(ticket=ticket, folder=_folder(spec, record))
        return await self._done(order, node)

    async def check(self, spec: TrialSpec, record: CheckpointRecord, node: str) -> str:
        """Why a checkpoint cannot be used on the node; "" if it is there and whole.

        Raises StorageUnavailable if the node does not answer.
        """
        ticket = f"{spec.trial_id}/{record.index}, here"
        folder = _folder(spec, record)
        return await self._done(
            Check(ticket=ticket, folder=folder, committed=record.committed), node
        )

    async def copy(self, source: str, target: str, node: str) -> tuple[int, int]:
        """Copy a checkpoint's folder on the node. Returns its files and bytes.

        Raises StorageUnavailable if it cannot be copied.
        """
        order = Copy(ticket=f"copy to {target}", source=source, target=target)
        copied: Copied = await self._answered(order, node)
        return copied.files, copied.size_bytes

    async def find(self, trial: Trial) -> list[CheckpointRecord]:
        """The complete checkpoints in storage that are newer than those in the records, newest
        first.

        Raises StorageUnavailable if storage does not answer.
        """
        spec, ticket = trial.spec, f"checkpoints of {trial.trial_id}"
        first = checkpoint_dirname(trial.next_checkpoint)
        order = Find(ticket=ticket, trial=spec.trial_id, folder=spec.dirname, first=first)
        answer: Found = await self._answered(order)
        return [
            CheckpointRecord(
                index=index,
                iteration=found.iteration,
                attempt=trial.attempt,
                files=found.files,
                size_bytes=found.size_bytes,
                time_total_s=found.time_total_s,
            )
            for found in answer.checkpoints
            if (index := checkpoint_number(found.folder)) is not None
        ]

    async def download(self, spec: TrialSpec, node: str = "", *, artifacts: bool = True) -> None:
        """Download the files that the trial wrote on another machine: its output, and with
        `artifacts` all others.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"artifacts of {spec.trial_id}"
        await self._done(Download(ticket=ticket, folder=spec.dirname, artifacts=artifacts), node)

    async def hand_over(self, spec: TrialSpec, node: str = "") -> None:
        """Send the trial's files to storage for the last time: from now on another machine does.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"leave {spec.trial_id}"
        await self._done(HandOver(ticket=ticket, folder=spec.dirname), node)

    async def _done(self, order: Asking, node: str) -> str:
        answer: Done = await self._answered(order, node)
        return answer.problem

    async def _answered(self, order: Asking, node: str = "") -> Any:
        """The answer to an order. Several callers may wait for the same one: clones of one
        checkpoint, and its own trial."""
        answer = await asyncio.shield(self.ask(order, node))
        if isinstance(answer, StorageUnavailable):
            raise answer
        return answer

    def ask(self, order: Asking, node: str = "") -> asyncio.Future[Any]:
        """Ask, unless the same is asked already. The answer may be a StorageUnavailable."""
        ticket = order.ticket
        if (known := self._asked.get((node, ticket))) is not None:
            return known[1]
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[node, ticket] = (order, asked)
        if node and not self._is_there(node):
            # It has left since its place was chosen, and `fail` was called before.
            self.answer(Unanswered(ticket=ticket, why=GONE), node)
        else:
            self._send(node, order)
        return asked

    def answer(self, answer: Reply, node: str = "") -> None:
        """Take an answer. One that nobody asked for is ignored. Raises ValueError if it answers
        another question."""
        if (node, answer.ticket) not in self._asked:
            return
        order, asked = self._asked[node, answer.ticket]
        if not isinstance(answer, (_ANSWERS.get(type(order), Done), Unanswered)):
            raise ValueError(f"{answer.name} does not answer {order.name}")
        del self._asked[node, answer.ticket]
        if isinstance(answer, Unanswered):
            where = f"node {node}" if node else "the storage"
            asked.set_result(StorageUnavailable("ask", where, answer.why))
        else:
            asked.set_result(answer)


def _folder(spec: TrialSpec, record: CheckpointRecord) -> str:
    return f"{spec.dirname}/{record.dirname}"
