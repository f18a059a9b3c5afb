"""The controller's side of the uploaders: orders for checkpoints and records, and answers.

Each order goes to the uploader that has the files: the owner's, at the controller, or a node's.
`CheckpointTable` decides what becomes of each checkpoint, and `Uploads` performs that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, assert_never

from holdfast.experiment.progress.summary import StorageAge, UploadProgress
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.uploads.checkpoint_table import (
    Awaited,
    CheckpointTable,
    Effect,
    Event,
    Key,
    Moment,
    Ordered,
    Over,
    Removable,
    Reply,
    Respond,
    Send,
    UploaderLost,
    Uploading,
)
from holdfast.experiment.uploads.nodes import NodeTransport, UploadNodes, UploadsHost
from holdfast.experiment.uploads.publishing import EndedTrials, Publishing
from holdfast.experiment.uploads.waiting import GONE, StorageQuestions
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import RestartingService
from holdfast.runtime.tasks import first_of
from holdfast.runtime.wire import Message
from holdfast.scheduler.machine import Machine
from holdfast.schema import to_row
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.uploader import messages
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed
from holdfast.trial.trial import (
    CheckpointRecord,
    Trial,
    TrialSpec,
    checkpoint_dirname,
    checkpoint_number,
    first_number,
)

_SHOWN_LEFT = 20


class Uploads:
    """Sends the uploaders their orders, and turns their answers into events and messages.

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
        transport: NodeTransport | None = None,
        where: str = "",
        machine: Machine | None = None,
    ) -> None:
        """`begins` is the journal's segment in which the experiment begins. `transport` reaches
        the nodes, None on one machine; `where` names the storage in messages. `machine` has the
        trials; None if the uploader looks at all folders each time."""
        self._uploader = uploader
        self._journal_writer = journal_writer
        self._host = host
        # Whether storage is elsewhere, and may have files that are lost here.
        self.is_remote = is_remote
        self.downloads_artifacts = sync.restore_artifacts
        self._sync_period_s = sync.sync_period
        self._loop = asyncio.get_running_loop()
        self.nodes = UploadNodes(transport, host=host, where=where)
        self.questions = StorageQuestions(self.send, self.nodes.__contains__)
        self._table = CheckpointTable()
        # The nodes with shares of checkpoints that are about to be reported, each with the files
        # that another node uploads. `commit` takes them; those of a report that is not recorded
        # stay, until the next attempt notes its own under the same number.
        self._shares: dict[Key, Mapping[str, list[str]]] = {}
        self._publishing = Publishing(
            journal_writer,
            send=self._order_publishing,
            begins=begins,
            sync=sync,
            is_timed=is_remote or self.nodes.has_nodes,
        )
        self._ended = EndedTrials(machine) if machine is not None and is_remote else None
        self._has_told_backlog = False
        self._upload: UploadProgress | None = None
        self._close_order: messages.Close | None = None
        self._moved_at = 0.0
        self._trouble = ""
        self._closed: asyncio.Future[list[str]] = self._loop.create_future()
        # Done once this run owns the storage, with the key of its claim.
        self.opened: asyncio.Future[str] = self._loop.create_future()

    def send(self, node: str, order: messages.Order) -> None:
        """Send an order to the uploader of a node, "" for the owner's."""
        if node:
            self.nodes.send(node, order)
        else:
            self._uploader.send(to_row(order))

    # -- checkpoints --------------------------------------------------------------------------

    def commit(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Order the commit of a checkpoint, unless that is under way."""
        key = (spec.trial_id, record.index)
        whole = messages.Commit(
            trial=spec.trial_id,
            index=record.index,
            folder=f"{spec.dirname}/{record.dirname}",
            iteration=record.iteration,
            time_total_s=record.time_total_s,
            stays_here=record.stays_here,
        )
        orders = self._orders(whole, record.node, self._shares.pop(key, {}))
        upload = Uploading(since=wall_time(), record=record, whole=whole, orders=orders)
        refusal = next(filter(None, map(self.nodes.refusal, orders)), "")
        self._handle(key, Ordered(upload, refusal))

    def _orders(
        self, whole: messages.Commit, node: str, shares: Mapping[str, list[str]]
    ) -> Mapping[str, messages.OfCheckpoint]:
        if any(name not in self.nodes for name in shares or [node] if name):
            # It is of an earlier run, or the node was lost meanwhile.
            return {"": messages.LookFor(whole=whole)}
        if not shares:
            return {node: whole}
        return {
            name: messages.UploadShare(whole=whole, left_out=left_out)
            for name, left_out in shares.items()
        }

    def note_shares(self, trial_id: str, index: int, left_out: Mapping[str, list[str]]) -> None:
        """Each of these nodes has a share of a checkpoint that is about to be reported, none if
        one node has all; `left_out` are files that another node has, too, and uploads."""
        self._shares[trial_id, index] = left_out

    def note_copy(self, spec: TrialSpec, index: int, node: str) -> None:
        """The whole checkpoint lies on the node, if that is there."""
        if node in self.nodes:
            self._handle((spec.trial_id, index), Moment.COPIED, node)

    def has_copy(self, spec: TrialSpec, index: int, node: str) -> bool:
        """True if the whole checkpoint lies on the node."""
        return self._table[spec.trial_id, index].copies.get(node, False)

    def discard(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Delete a checkpoint once the journal on the disk no longer names it.

        Otherwise a power cut could bring its record back.
        """
        self._handle((spec.trial_id, record.index), Moment.SUPERSEDED)
        self._remove_once_durable(spec, [record.index])

    def discard_superseded(self, trial: Trial, kept: Collection[int]) -> None:
        """Delete checkpoints that an earlier incarnation superseded and had no time to delete."""
        numbers = range(first_number(trial.next_checkpoint), trial.next_checkpoint)
        if gone := [n for n in numbers if n not in kept]:
            self._remove_once_durable(trial.spec, gone)

    def _remove_once_durable(self, spec: TrialSpec, numbers: Sequence[int]) -> None:
        self._journal_writer.when_durable(partial(self._remove, spec, numbers))

    def _remove(self, spec: TrialSpec, numbers: Sequence[int]) -> None:
        trial_id, only_here = spec.trial_id, []
        for number in numbers:
            folder = f"{spec.dirname}/{checkpoint_dirname(number)}"
            if (key := (trial_id, number)) in self._table:
                order = messages.Discard(trial=trial_id, folders=[folder])
                self._handle(key, Removable(order))
            else:
                only_here.append(folder)
        if only_here:
            self.send("", messages.Discard(trial=trial_id, folders=only_here))

    def _handle(self, key: Key, event: Event, node: str = "") -> None:
        self._perform(self._table.handle(key, event, node))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.send(effect.node, effect.order)
                case Respond():
                    effect.reply(effect.problem)
                case Over():
                    self._end_upload(effect)
                case _:
                    assert_never(effect)

    def _end_upload(self, over: Over) -> None:
        trial_id, index = over.whole.trial, over.whole.index
        match over.how:
            case "committed":
                self._trouble = ""
                self._host.post(Committed(trial_id=trial_id, index=index))
                self._publishing.committed(over.whole.folder.rpartition("/")[0])
            case "lost":
                self._host.lose(trial_id, index, over.why)
            case "uncommitted":
                self._trouble = over.why
                self._host.warn(
                    f"checkpoint {index} of trial {trial_id} is not kept in storage: {over.why}. "
                    f"The local copy stays",
                    "loss",
                )

    # -- those who wait -----------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        return self._table.has_backlog

    def hold(self, reply: Reply) -> None:
        """Answer a report when the backlog is shorter. This slows reports down."""
        if not self._has_told_backlog:
            self._has_told_backlog = True
            self._host.warn(
                f"{self._table.count_uploading} checkpoints are waiting for upload. report() "
                f"blocks until one is uploaded"
            )
        self._perform(self._table.hold(reply))

    def hold_until_kept(self, trial_id: str, index: int, reply: Reply) -> None:
        """Answer a report once its checkpoint is in storage, or if it cannot be."""
        self._handle((trial_id, index), Awaited(reply))

    async def committed(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Wait until no uploader owes an answer about the checkpoint. The uploader's deadlines
        apply."""
        over, reply = self._future_and_reply()
        self.hold_until_kept(spec.trial_id, record.index, reply)
        await over

    def _future_and_reply(self) -> tuple[asyncio.Future[None], Reply]:
        """A future, and the reply that ends it."""
        future: asyncio.Future[None] = self._loop.create_future()
        return future, lambda problem: None if future.done() else future.set_result(None)

    # -- the files of trials ------------------------------------------------------------------

    async def download(self, spec: TrialSpec, node: str = "") -> None:
        """Let the node have the trial's output, and with `restore_artifacts` its other files.
        Raises StorageUnavailable."""
        await self.questions.download(spec, node, artifacts=self.downloads_artifacts)

    async def hand_over(self, spec: TrialSpec, node: str = "") -> None:
        """Let the node, or the controller, send the trial's files for the last time. Raises
        StorageUnavailable."""
        if self.is_remote or node:  # otherwise they are in the storage already
            await self.questions.hand_over(spec, node)
            self.nodes.trials_on(node).handed_over(spec.dirname)

    def release(self, has_ended: Callable[[str], bool], nodes: Collection[str]) -> None:
        """Let these nodes remove trials that have ended, by their ids, but for those with a
        checkpoint that is being uploaded."""
        busy = {upload.whole.trial for upload in self._table.uploads()}
        for node in filter(self.nodes.sees_storage, nodes):
            trials = self.nodes.trials_on(node)
            for trial_id in trials.release(lambda one: one not in busy and has_ended(one)):
                released = self._table.handle_all(Moment.RELEASED, node, of_trial=trial_id)
                self._perform(released)

    def _order_publishing(self, order: messages.SendFiles | messages.Publish) -> None:
        """Send an order of `Publishing`. Nodes upload the output of their trials with each
        publication."""
        if isinstance(order, messages.SendFiles):
            self.nodes.send_files(order.folders, artifacts=True)
        else:
            self.nodes.send_files(None, artifacts=False)
            self._note_ended()
        self.send("", order)

    def _note_ended(self) -> None:
        """Before a publication: whose folders storage may have as they are."""
        if self._ended is not None:
            journal = self._journal_writer
            for found in self._ended.news(journal.position):
                self.send("", messages.NoteEnded(fingerprints=found))
            for found in self._ended.written(journal.written):
                self.send("", messages.NoteEnded(fingerprints=found, are_written=True))

    # -- uploaders that are replaced, and nodes -----------------------------------------------

    def resend_state(self) -> None:
        """Repeat the waiting orders for an uploader that replaces one that died."""
        self._repeat("")
        self._upload = None
        if self._ended is not None:
            self._ended.forget()
        self._publishing.order_again()
        if self._close_order is not None:
            self.send("", self._close_order)

    def _repeat(self, node: str) -> None:
        """Repeat the waiting orders for the uploader of a node, "" for the owner's."""
        self._perform(self._table.handle_all(Moment.REPLACED, node))
        self.questions.ask_again(node)
        self.nodes.repeat(node)

    def node_joined(self, node: str) -> None:
        """A node is there, and its uploader was sent its settings."""
        self.nodes.join(node)

    def node_leaving(self, node: str) -> None:
        """A node goes soon: let it send its trials' files. Its checkpoints are under way."""
        self.nodes.send_files(None, artifacts=True, only=node)

    def node_left(self, node: str) -> None:
        """A node is gone: storage may have what its uploader was about to commit."""
        self.nodes.leave(node)
        self.questions.fail(node, GONE)
        self._perform(self._table.handle_all(Moment.NODE_LEFT, node))

    def _lose_uploader(self, node: str, text: str) -> None:
        """The uploader of a node has failed for good, and the node is still there."""
        self.nodes.decide(node, text)
        self.questions.fail(node, text)
        self.nodes.closed(node, [text])
        self._perform(self._table.handle_all(UploaderLost(text), node))

    # -- answers ------------------------------------------------------------------------------

    def on_answer(self, message: Message, node: str = "") -> None:
        """Handle an answer of a node's uploader, or of the owner's. Raises ValueError if no
        uploader sends it."""
        answer: messages.Answer = messages.ANSWERS.read(message)
        match answer:
            case messages.Committed() | messages.NotCommitted() | messages.Shared():
                self._handle((answer.trial, answer.index), answer, node)
            case messages.Discarded() if node:
                for name in (folder.rpartition("/")[2] for folder in answer.folders):
                    if (number := checkpoint_number(name)) is not None:
                        self._handle((answer.trial, number), answer, node)
            case messages.Done() | messages.Found() | messages.Copied() | messages.Unanswered():
                self.questions.answer(answer, node)
            case messages.Notice():
                self._on_notice(answer, node)
            case messages.Failed():
                self._on_failure(answer, f"on node {node}: {answer.why}" if node else answer.why)
            case messages.Progress() if not node:
                self._show_progress(answer)
            case messages.Sign(name="moving"):
                self._moved_at = self._loop.time()
            case messages.Sign() if node:  # it was replaced
                self._repeat(node)
            case messages.SentEnded() if node:
                self.nodes.trials_on(node).sent(answer.folder)
            case messages.Seen() if node:
                self.nodes.find_token(node, answer, self.questions)
            case messages.Kept() if node:
                self.nodes.kept(node, answer.place)
            case messages.Remaining(name="closed") if node:
                self.nodes.closed(node, answer.lines)
            case messages.Remaining(name="closed"):
                self._closed.set_result([*answer.lines])
            case messages.Remaining() if not node:
                self._host.warn(_left(answer.lines))
            case messages.Remaining() | messages.Progress():
                pass  # of one node; and its folder is removed at the end
            case messages.Published() if not node:
                self._publishing.published(Position(answer.segment, answer.offset))
                self._trouble = ""
            case messages.Opened() if not node:
                if not self.opened.done():  # a replacement opens it again
                    self.opened.set_result(answer.claim)
            case _:
                raise ValueError(f"not an answer of {node or 'the owner'}: {answer.name}")

    def _on_failure(self, failed: messages.Failed, why: str) -> None:
        if failed.name == "stuck":
            self._host.warn(
                f"Cannot delete the superseded checkpoint {failed.what}: {why}. Will retry"
            )
        else:
            self._trouble = why
            self._host.warn(
                f"storage gave up on {failed.what}: {why}. The local copy is kept", "loss"
            )

    def _on_notice(self, notice: messages.Notice, node: str) -> None:
        text = notice.text
        told = f"on node {node}: {text}" if node else text
        match notice.name:
            case "warning":
                self._host.warn(told)
            case "trouble":
                self._trouble = told
                self._host.warn(f"storage: {told}")
            case "refused" if not node:
                self._host.lose_ownership(text)
            case "refused":  # only the owner can say that another run owns the storage
                self.send("", messages.CheckClaim())
            case "blind":
                self.nodes.decide(node, text)
            case "gone":
                self._lose_uploader(node, text)

    def _show_progress(self, at: messages.Progress) -> None:
        name = f"{at.files:,} of {at.total_files:,} artifacts"
        done = UploadProgress(name=name, done_bytes=at.done_bytes, total_bytes=at.total_bytes)
        self._upload = done if at.files < at.total_files else None

    # -- what is shown ------------------------------------------------------------------------

    def age(self, now: float) -> StorageAge | None:
        """The data that is not in storage yet; None if nothing waits, as always with local
        storage."""
        if not self.is_remote and not self.nodes.has_nodes:
            return StorageAge(trouble=self._trouble) if self._trouble else None
        uploads = self._table.uploads()  # in one step, because another thread may call this
        oldest = min((upload.since for upload in uploads), default=now)
        if self.is_remote:
            oldest = min(oldest, self._publishing.published_at)
        if oldest >= now and not self._trouble and self._upload is None:
            return None
        return StorageAge(
            oldest_s=now - oldest,
            checkpoints=len(uploads),
            files=sum(upload.record.files for upload in uploads),
            pending_bytes=sum(upload.record.size_bytes for upload in uploads),
            period_s=self._sync_period_s,
            upload=self._upload,
            trouble=self._trouble,
        )

    def waiting(self) -> list[str]:
        """The folders of checkpoints that are not committed yet, with where they are."""
        return [
            self.nodes.with_place(next(iter(upload.orders), ""), upload.whole.folder)
            for upload in self._table.uploads()
        ]

    def processes(self) -> list[Watched]:
        return self._uploader.processes()

    # -- publications, and the end ------------------------------------------------------------

    def publish(self) -> None:
        """Publish the records so far, with the artifacts of all trials."""
        self._publishing.publish()

    async def drain(self, deadline_s: float, *, is_patient: bool = False) -> None:
        """Wait until every checkpoint is committed, at most `deadline_s`, or if `is_patient` at
        most `deadline_s` without progress."""
        idle, reply = self._future_and_reply()
        self._perform(self._table.release())
        self._perform(self._table.hold(reply, below=1))
        await self._wait_for([idle, self._uploader.ended], deadline_s, is_patient)

    async def close_nodes(self, deadline_s: float, *, is_patient: bool = False) -> None:
        """Finish the orders of nodes, and upload their trials' files. `close` returns what is not
        in storage. The owner publishes after it."""
        self.nodes.send_files(None, artifacts=True)
        over = self.nodes.close(messages.Close(deadline_s=deadline_s, is_patient=is_patient))
        await self._wait_for([over], deadline_s + 5, is_patient)

    async def _wait_for(
        self, ends: list[asyncio.Future[Any]], deadline_s: float, is_patient: bool
    ) -> None:
        """Wait until one of them ends, or the time is up."""
        until = self._loop.time() + deadline_s
        while (left_s := until - self._loop.time()) > 0:
            if await first_of(ends, left_s):
                return
            if is_patient:
                until = self._moved_at + deadline_s

    def stop(self) -> None:
        """From now on publish only on demand."""
        self._publishing.stop()

    async def abandon(self) -> None:
        """End the uploader at once, and leave storage as it is."""
        self.stop()
        self._uploader.kill()
        await self._uploader.close()

    async def close(self, deadline_s: float, *, is_patient: bool = False) -> list[str]:
        """Finish all orders. Returns what is not in storage. If `is_patient`, the deadline counts
        from the last progress."""
        await self._journal_writer.sync()
        self._perform(self._table.handle_all(Moment.ENDING))
        self._close_order = messages.Close(deadline_s=deadline_s, is_patient=is_patient)
        self._publishing.stop()
        self.send("", self._close_order)
        ends: list[asyncio.Future[Any]] = [self._closed, self._uploader.ended]
        await self._wait_for(ends, deadline_s + 5, is_patient)
        if self._closed.done():
            failed = self._closed.result()
        elif self._uploader.ended.done():
            failed = [f"the uploader {self._uploader.ended.result() or 'ended'}"]
        else:
            failed = [f"the uploader had not finished after {deadline_s + 5:g} s"]
        await self._uploader.close(has_finished=self._closed.done())
        return [*self.nodes.unsaved(), *failed]


def _left(lines: Sequence[str]) -> str:
    """A warning about superseded checkpoints that are still there at the end."""
    listed = "\n  ".join(lines[:_SHOWN_LEFT])
    more = f"\n  and {len(lines) - _SHOWN_LEFT} more" if len(lines) > _SHOWN_LEFT else ""
    return (
        f"superseded checkpoints could not be removed. A restore of the experiment, or "
        f"`holdfast doctor gc`, removes them:\n  {listed}{more}"
    )
