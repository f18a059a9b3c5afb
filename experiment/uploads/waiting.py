"""What the start of a trial waits for: questions to the uploaders, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.uploader.messages import (
    Asking,
    Check,
    Copied,
    Copy,
    Done,
    Download,
    Fetch,
    Find,
    Found,
    HandOver,
    Order,
    Reply,
    Unanswered,
)
from holdfast.trial.trial import (
    CheckpointRecord,
    Trial,
    TrialSpec,
    checkpoint_dirname,
    checkpoint_number,
)

GONE = "the node is gone"
_ANSWERS: Mapping[type, type] = {Find: Found, Copy: Copied}


class StorageQuestions:
    """Questions to storage about a trial that is about to start, and their answers.

    Each question waits as long as the uploader tries: `SyncConfig.sync_timeout` without progress.
    A question without a node goes to the owner, at the controller. All that ask raise
    StorageUnavailable if there is no answer."""

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
        """Download a checkpoint. Returns why it is lost, "" if it is not."""
        ticket = f"{spec.trial_id}/{record.index}"
        return await self._done(Fetch(ticket=ticket, folder=_folder(spec, record)), node)

    async def check(self, spec: TrialSpec, record: CheckpointRecord, node: str) -> str:
        """Why a checkpoint cannot be used on the node; "" if it is there and whole."""
        ticket, folder = f"{spec.trial_id}/{record.index}, here", _folder(spec, record)
        order = Check(ticket=ticket, folder=folder, committed=record.committed)
        return await self._done(order, node)

    async def copy(self, source: str, target: str, node: str) -> tuple[int, int]:
        """Copy a checkpoint's folder on the node. Returns its files and bytes."""
        order = Copy(ticket=f"copy to {target}", source=source, target=target)
        copied: Copied = await self._answered(order, node)
        return copied.files, copied.size_bytes

    async def find(self, trial: Trial) -> list[CheckpointRecord]:
        """The complete checkpoints in storage that are newer than those in the records, newest
        first."""
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

    async def download(self, spec: TrialSpec, node: str = "", *, artifacts: bool) -> None:
        """Download the files that the trial wrote on another machine: its output, and with
        `artifacts` all others."""
        ticket = f"artifacts of {spec.trial_id}"
        await self._done(Download(ticket=ticket, folder=spec.dirname, artifacts=artifacts), node)

    async def hand_over(self, spec: TrialSpec, node: str) -> None:
        """Send the trial's files to storage for the last time: from now on another machine
        does."""
        await self._done(HandOver(ticket=f"leave {spec.trial_id}", folder=spec.dirname), node)

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
