"""Questions to storage about a trial that is about to start, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.runtime.wire import Message
from holdfast.syncer.errors import StorageUnavailable
from holdfast.trial.trial import (
    CheckpointRecord,
    Trial,
    TrialSpec,
    checkpoint_dirname,
    checkpoint_number,
)

GONE = "the node is gone"
# The names of answers that are not "fetched".
_ANSWERS = {"find": "found", "copy": "copied"}


class StorageQuestions:
    """Each question waits as long as the keeper tries: `SyncConfig.sync_timeout` without
    progress. A question without a node goes to the owner, at the controller."""

    def __init__(
        self, send: Callable[[str, Message], None], is_there: Callable[[str], bool]
    ) -> None:
        """`send` sends a message to the keeper of a node, "" for the owner. `is_there`: whether
        this node has not left."""
        self._send = send
        self._is_there = is_there
        self._asked: dict[tuple[str, str], tuple[Message, asyncio.Future[Any]]] = {}

    def ask_again(self, node: str = "") -> None:
        """Repeat all questions to a keeper that has replaced the previous one."""
        for (asked, _), (order, _) in self._asked.items():
            if asked == node:
                self._send(node, order)

    def fail(self, node: str, why: str) -> None:
        """The node is lost: its keeper answers no question any more."""
        for asked, ticket in list(self._asked):
            if asked == node:
                self.answer("unanswered", ticket, why, node)

    async def fetch(self, spec: TrialSpec, record: CheckpointRecord, node: str = "") -> str:
        """Download a checkpoint. Returns why it is lost, "" if it is not.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"{spec.trial_id}/{record.index}"
        problem: str = await self._answered(ticket, ["fetch", ticket, _folder(spec, record)], node)
        return problem

    async def have(self, spec: TrialSpec, record: CheckpointRecord, node: str) -> str:
        """Why a checkpoint cannot be used on the node; "" if it is there and whole.

        Raises StorageUnavailable if the node does not answer.
        """
        ticket = f"{spec.trial_id}/{record.index}, here"
        order = ["have", ticket, _folder(spec, record), record.committed]
        problem: str = await self._answered(ticket, order, node)
        return problem

    async def copy(self, source: str, target: str, node: str) -> tuple[int, int]:
        """Copy a checkpoint's folder on the node. Returns its files and bytes.

        Raises StorageUnavailable if it cannot be copied.
        """
        ticket = f"copy to {target}"
        files, size = await self._answered(ticket, ["copy", ticket, source, target], node)
        return files, size

    async def find(self, trial: Trial) -> list[CheckpointRecord]:
        """The complete checkpoints in storage that are newer than those in the records, newest
        first.

        Raises StorageUnavailable if storage does not answer.
        """
        spec, ticket = trial.spec, f"checkpoints of {trial.trial_id}"
        first = checkpoint_dirname(trial.next_checkpoint)
        order = ["find", ticket, spec.trial_id, spec.dirname, first]
        return [
            CheckpointRecord(
                index=index,
                iteration=iteration,
                attempt=trial.attempt,
                files=files,
                size_bytes=size_bytes,
                time_total_s=time_total_s,
            )
            for name, iteration, time_total_s, files, size_bytes in await self._answered(
                ticket, order
            )
            if (index := checkpoint_number(name)) is not None
        ]

    async def bring(self, spec: TrialSpec, node: str = "", *, artifacts: bool = True) -> None:
        """Download the files that the trial wrote on another machine: its output, and with
        `artifacts` all others.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"artifacts of {spec.trial_id}"
        order = ["bring", ticket, spec.dirname, *([] if artifacts else [False])]
        await self._answered(ticket, order, node)

    async def hand_over(self, spec: TrialSpec, node: str = "") -> None:
        """Send the trial's files to storage for the last time: from now on another machine does.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"leave {spec.trial_id}"
        await self._answered(ticket, ["hand_over", ticket, spec.dirname], node)

    async def _answered(self, ticket: str, order: Message, node: str = "") -> Any:
        """The answer to an order. Several callers may wait for the same one: clones of one
        checkpoint, and its own trial."""
        answer = await asyncio.shield(self.ask(ticket, order, node))
        if isinstance(answer, StorageUnavailable):
            raise answer
        return answer

    def ask(self, ticket: str, order: Message, node: str = "") -> asyncio.Future[Any]:
        """Ask, unless the same is asked already. The answer may be a StorageUnavailable."""
        if (known := self._asked.get((node, ticket))) is not None:
            return known[1]
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[node, ticket] = (order, asked)
        if node and not self._is_there(node):
            # It has left since its place was chosen, and `fail` was called before.
            self.answer("unanswered", ticket, GONE, node)
        else:
            self._send(node, order)
        return asked

    def answer(self, name: str, ticket: str, answer: Any, node: str = "") -> None:
        """Take the answer of this name. One that nobody asked for is ignored. Raises ValueError
        if it answers another question."""
        if (node, ticket) not in self._asked:
            return
        order, asked = self._asked[node, ticket]
        if name not in (_ANSWERS.get(order[0], "fetched"), "unanswered"):
            raise ValueError(f"{name} does not answer {order[0]}")
        del self._asked[node, ticket]
        if name == "unanswered":
            where = f"node {node}" if node else "the storage"
            answer = StorageUnavailable("ask", where, answer)
        asked.set_result(answer)


def _folder(spec: TrialSpec, record: CheckpointRecord) -> str:
    return f"{spec.dirname}/{record.dirname}"
