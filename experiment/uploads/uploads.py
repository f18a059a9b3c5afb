"""The controller's side of the uploader process: orders for checkpoints and records, and
answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.summary import StorageAge, UploadProgress
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.records.wall_clock import wall_time
from holdfast.experiment.uploads.host import UploadsHost
from holdfast.experiment.uploads.publishing import Publishing
from holdfast.experiment.uploads.questions import StorageQuestions
from holdfast.runtime.restarting_service import RestartingService
from holdfast.runtime.stopped import Watched
from holdfast.runtime.wire import Message
from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.journal.journal import Position
from holdfast.trial.checkpoint import (
    CheckpointRecord,
    checkpoint_dirname,
)
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed
from holdfast.trial.trial import Trial, TrialSpec

# While this many checkpoints wait, report() returns only when another one is uploaded.
BACKLOG = 64
_SHOWN_LEFT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCheckpoint:
    """A checkpoint that the uploader has not committed yet; `since` is when it was ordered."""

    since: float
    files: int
    size_bytes: int
    folder: str
    order: Message

    @property
    def trial_folder(self) -> str:
        return self.folder.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A `report()` that returns once its checkpoint is in storage, or raises."""

    answer: Callable[[], None]
    refuse: Callable[[str], None]


class Uploads:
    """Sends the uploader its orders, and turns its answers into events and messages.

    Everything that an uploader has not answered is repeated to the one that replaces it.
    """

    def __init__(
        self,
        uploader: RestartingService,
        journal_writer: JournalWriter,
        *,
        host: UploadsHost,
        sync: SyncConfig,
        begins: int,
        is_remote: bool,
    ) -> None:
        """`begins` is the journal's segment in which the experiment begins."""
        self._uploader = uploader
        self._journal_writer = journal_writer
        self._host = host
        # Whether storage is elsewhere, and may have files that are lost here.
        self.is_remote = is_remote
        self._sync_period_s = sync.sync_period
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, int], WaitingCheckpoint] = {}
        self._held: deque[Callable[[], None]] = deque()
        self._callers: dict[tuple[str, int], Caller] = {}
        self.questions = StorageQuestions(uploader.send)
        self._publishing = Publishing(
            journal_writer,
            send=uploader.send,
            begins=begins,
            sync=sync,
            is_timed=is_remote,
        )
        self.brings_artifacts = sync.restore_artifacts and is_remote
        self._upload: UploadProgress | None = None
        self._close_order: Message | None = None
        self._moved_at = 0.0
        self._trouble = ""
        self._closed: asyncio.Future[list[str]] = self._loop.create_future()
        # Done once this run owns the storage.
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._idle: asyncio.Future[None] = self._loop.create_future()
        self._idle.set_result(None)
        self._told_backlog = False

    @property
    def has_backlog(self) -> bool:
        return len(self._waiting) >= BACKLOG

    def hold(self, answer: Callable[[], None]) -> None:
        """Call `answer` when the backlog is shorter. This slows reports down."""
        if not self._told_backlog:
            self._told_backlog = True
            self._host.warn(
                f"{len(self._waiting)} checkpoints are waiting for upload. report() blocks until "
                f"one is uploaded"
            )
        self._held.append(answer)

    def hold_until_kept(
        self,
        trial_id: str,
        index: int,
        answer: Callable[[], None],
        refuse: Callable[[str], None],
    ) -> None:
        """Call `answer` once the checkpoint is in storage, or `refuse` if it cannot be."""
        self._callers[trial_id, index] = Caller(answer=answer, refuse=refuse)

    def age(self, now: float) -> StorageAge | None:
        """The data that is not in storage yet; None if nothing waits, as always with local
        storage."""
        if not self.is_remote:
            return StorageAge(trouble=self._trouble) if self._trouble else None
        waiting = list(self._waiting.values())  # in one step, because another thread may call this
        oldest = min((item.since for item in waiting), default=now)
        oldest = min(oldest, self._publishing.published_at)
        if oldest >= now and not self._trouble and self._upload is None:
            return None
        return StorageAge(
            oldest_s=now - oldest,
            checkpoints=len(waiting),
            files=sum(item.files for item in waiting),
            pending_bytes=sum(item.size_bytes for item in waiting),
            period_s=self._sync_period_s,
            upload=self._upload,
            trouble=self._trouble,
        )

    def commit(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        key = (spec.trial_id, record.index)
        if key not in self._waiting:
            if self._idle.done():
                self._idle = self._loop.create_future()
            folder = f"{spec.dirname}/{record.dirname}"
            order = [
                "seal" if record.stays_here else "commit",
                spec.trial_id,
                record.index,
                folder,
                record.iteration,
                record.time_total_s,
            ]
            self._waiting[key] = WaitingCheckpoint(
                since=wall_time(),
                files=record.files,
                size_bytes=record.size_bytes,
                folder=folder,
                order=order,
            )
            self._uploader.send(order)

    def discard(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Delete a checkpoint once the journal on the disk no longer names it.

        Otherwise a power cut could bring its record back.
        """
        self._done_with(spec.trial_id, record.index)
        self._discard(spec, [record.dirname])

    def discard_superseded(self, trial: Trial, kept: Collection[int]) -> None:
        """Delete checkpoints that an earlier incarnation superseded and had no time to delete."""
        gone = [n for n in range(trial.next_checkpoint) if n not in kept]
        if gone:
            self._discard(trial.spec, map(checkpoint_dirname, gone))

    def _discard(self, spec: TrialSpec, checkpoints: Iterable[str]) -> None:
        order = ["discard", spec.trial_id, [f"{spec.dirname}/{name}" for name in checkpoints]]
        self._journal_writer.when_durable(lambda: self._uploader.send(order))

    def resend_state(self) -> None:
        """Repeat the waiting orders for an uploader that replaces one that died."""
        for item in self._waiting.values():
            self._uploader.send(item.order)
        self.questions.ask_again()
        self._upload = None
        self._publishing.order_again()
        if self._close_order is not None:
            self._uploader.send(self._close_order)

    def on_uploader(self, message: Message) -> None:
        match message:
            case ["committed", str(trial_id), int(index)]:
                waiting = self._waiting.get((trial_id, index))
                self._done_with(trial_id, index)
                self._trouble = ""
                self._host.post(Committed(trial_id=trial_id, index=index))
                self._publishing.committed(None if waiting is None else waiting.trial_folder)
            case ["published", int(segment), int(offset)]:
                self._publishing.published(Position(segment, offset))
                self._trouble = ""
            case ["moving"]:
                self._moved_at = self._loop.time()
            case ["trouble", str(text)]:
                self._trouble = text
                self._host.warn(f"storage: {text}")
            case ["uncommitted", str(trial_id), int(index), str(text)]:
                # Do not wait for it: it is on this disk, and a restore orders it again.
                self._done_with(
                    trial_id,
                    index,
                    f"the checkpoint is on this machine and not in storage: {text}",
                )
                self._trouble = text
                self._host.warn(
                    f"checkpoint {index} of trial {trial_id} is not kept in storage: {text}. "
                    f"The local copy stays",
                    "loss",
                )
            case ["lost", str(trial_id), int(index), str(text)]:
                self._done_with(trial_id, index, text)
                self._host.lose(trial_id, index, text)
            case ["failed", str(what), str(text)]:
                self._trouble = text
                self._host.warn(
                    f"storage gave up on {what}: {text}. The local copy is kept", "loss"
                )
            case ["stuck", str(where), str(why)]:
                self._host.warn(
                    f"Cannot delete the superseded checkpoint {where}: {why}. Will retry"
                )
            case ["left", list(lines)]:
                self._host.warn(_left(lines))
            case ["fetched", str(ticket), str(answer)] | ["found", str(ticket), list(answer)]:
                self.questions.answer(ticket, answer)
            case ["unanswered", str(ticket), str(text)]:
                self.questions.answer(ticket, StorageUnavailable("ask", "the storage", text))
            case ["warning", str(text)]:
                self._host.warn(text)
            case ["progress", int(files), int(total), int(done_bytes), int(total_bytes)]:
                name = f"{files:,} of {total:,} artifacts"
                done = UploadProgress(name=name, done_bytes=done_bytes, total_bytes=total_bytes)
                self._upload = done if files < total else None
            case ["opened", str()]:
                if not self.opened.done():  # a replacement opens it again
                    self.opened.set_result(None)
            case ["refused", str(text)]:
                self._host.lose_ownership(text)
            case ["closed", list(failed)]:
                self._closed.set_result(failed)
            case _:
                raise ValueError(f"not a message of the uploader: {message!r:.100}")

    def _done_with(self, trial_id: str, index: int, problem: str = "") -> None:
        """Remove a waiting checkpoint. Answers its report, and reports behind a backlog."""
        self._waiting.pop((trial_id, index), None)
        caller = self._callers.pop((trial_id, index), None)
        if caller is not None and problem:
            caller.refuse(problem)
        elif caller is not None:
            caller.answer()
        if not self._waiting and not self._idle.done():
            self._idle.set_result(None)
        while self._held and not self.has_backlog:
            self._held.popleft()()

    def publish(self) -> None:
        """Publish the records so far, with the artifacts of all trials."""
        self._publishing.publish()

    def processes(self) -> list[Watched]:
        return self._uploader.processes()

    async def drain(self, deadline_s: float, *, is_patient: bool = False) -> None:
        """Wait until every checkpoint is committed, at most `deadline_s`, or if `is_patient` at
        most `deadline_s` without progress."""
        while self._held:
            self._held.popleft()()
        await self._wait_for([self._idle, self._uploader.ended], deadline_s, is_patient)

    async def _wait_for(
        self, ends: list[asyncio.Future[Any]], deadline_s: float, is_patient: bool
    ) -> None:
        """Wait until one of them ends, or the time is up."""
        until = self._loop.time() + deadline_s
        while (left_s := until - self._loop.time()) > 0:
            done, _ = await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            until = self._moved_at + deadline_s if is_patient else until

    def waiting(self) -> list[str]:
        """The folders of checkpoints that are not committed yet."""
        return [item.folder for item in self._waiting.values()]

    async def abandon(self) -> None:
        """End the uploader at once, and leave storage as it is."""
        self._publishing.stop()
        self._uploader.kill()
        await self._uploader.close()

    async def close(self, deadline_s: float, *, is_patient: bool = False) -> list[str]:
        """Finish all orders. Returns what is not in storage. If `is_patient`, the deadline counts
        from the last progress."""
        await self._journal_writer.sync()
        self._close_order = ["close", deadline_s, is_patient]
        self._publishing.stop()
        self._uploader.send(self._close_order)
        ends: list[asyncio.Future[Any]] = [self._closed, self._uploader.ended]
        await self._wait_for(ends, deadline_s + 5, is_patient)
        if self._closed.done():
            failed = self._closed.result()
        elif self._uploader.ended.done():
            failed = [f"the uploader {self._uploader.ended.result() or 'ended'}"]
        else:
            failed = [f"the uploader had not finished after {deadline_s + 5:g} s"]
        await self._uploader.close()
        return failed


def _left(lines: list[str]) -> str:
    """A warning about superseded checkpoints that are still there at the end."""
    listed = "\n  ".join(lines[:_SHOWN_LEFT])
    more = f"\n  and {len(lines) - _SHOWN_LEFT} more" if len(lines) > _SHOWN_LEFT else ""
    return (
        f"superseded checkpoints could not be removed. A restore of the experiment, or "
        f"`holdfast doctor gc`, removes them:\n  {listed}{more}"
    )
