"""The checkpoints that are not committed yet, and the reports that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.runtime.wire import Message

# While this many checkpoints wait, report() returns only when another one is uploaded.
BACKLOG = 64

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a checkpoint that one node has: size and checksum by file, and folders without
    files."""

    files: Mapping[str, list[Any]]
    empty_folders: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCheckpoint:
    """A checkpoint that its keeper has not committed yet; `since` is when it was ordered.

    `orders` has the order for the keeper of each node that has a part of it, "" for the owner.
    `look` is the owner's order if a node is lost. `shares` are the answers of nodes that have
    uploaded their parts; then `last` is ordered.
    """

    since: float
    files: int
    size_bytes: int
    folder: str
    orders: Mapping[str, Message]
    look: Message
    shares: tuple[Share, ...] = ()
    last: Message = field(default_factory=list)

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
        """Those that wait for the keeper of this node; "" is the owner."""
        return [item for item in self._waiting.values() if node in item.orders]

    def add(self, key: Key, item: WaitingCheckpoint) -> None:
        if self.idle.done():
            self.idle = self._loop.create_future()
        self._waiting[key] = item

    def move_to_owner(self, node: str) -> list[WaitingCheckpoint]:
        """The node is lost: let the owner look for its checkpoints in storage. Returns these."""
        moved = {
            key: replace(item, orders={"": item.look})
            for key, item in self._waiting.items()
            if node in item.orders
        }
        self._waiting |= moved
        return [*moved.values()]

    def shared(self, key: Key, node: str, share: Share) -> Message | None:
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
        """Wait until the checkpoint does not wait any more. The keeper's deadlines apply."""
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


def _completing(item: WaitingCheckpoint) -> Message:
    """The order to complete a checkpoint of which all shares are in storage."""
    files = {name: fact for share in item.shares for name, fact in share.files.items()}
    above = {name.rpartition("/")[0] for name in files}
    folders = dict.fromkeys(name for share in item.shares for name in share.empty_folders)
    empty = [name for name in folders if name not in above]
    name, *where, iteration, time_total_s = item.last
    return [name, *where, files, empty, iteration, time_total_s]
