"""Questions to storage about a trial that is about to start, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.runtime.wire import Message
from holdfast.syncer.errors import StorageUnavailable
from holdfast.trial.checkpoint import CheckpointRecord, checkpoint_dirname, checkpoint_number
from holdfast.trial.trial import Trial, TrialSpec


class StorageQuestions:
    """Each question waits as long as the uploader tries: `SyncConfig.sync_timeout` without
    progress."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        """`send` sends a message to the uploader."""
        self._send = send
        self._asked: dict[str, tuple[Message, asyncio.Future[Any]]] = {}

    def ask_again(self) -> None:
        """Repeat all questions, because a new uploader has replaced the previous one."""
        for order, _ in self._asked.values():
            self._send(order)

    async def fetch(self, spec: TrialSpec, record: CheckpointRecord) -> str:
        """Download a checkpoint. Returns why it is lost, "" if it is not.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"{spec.trial_id}/{record.index}"
        folder = f"{spec.dirname}/{record.dirname}"
        problem: str = await self._answered(ticket, ["fetch", ticket, folder])
        return problem

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

    async def bring(self, spec: TrialSpec) -> None:
        """Download the files that the trial wrote on another machine.

        Raises StorageUnavailable if storage does not answer.
        """
        ticket = f"artifacts of {spec.trial_id}"
        await self._answered(ticket, ["bring", ticket, spec.dirname])

    async def _answered(self, ticket: str, order: Message) -> Any:
        """The answer to an order. Several callers may wait for the same one: clones of one
        checkpoint, and its own trial."""
        if ticket not in self._asked:
            self._asked[ticket] = (order, asyncio.get_running_loop().create_future())
            self._send(order)
        answer = await asyncio.shield(self._asked[ticket][1])
        if isinstance(answer, StorageUnavailable):
            raise answer
        return answer

    def answer(self, ticket: str, answer: Any) -> None:
        _, asked = self._asked.pop(ticket, (None, None))
        if asked is not None:
            asked.set_result(answer)
