"""The controller's side of the uploaders: orders for checkpoints and records, and answers.

Each order goes to the uploader that has the files: the owner's, at the controller, or a node's. If
a node is lost, its waiting orders go to the owner, which looks for the checkpoints in storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.experiment.progress.summary import StorageAge, UploadProgress
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.uploads.nodes import NodeTransport, UploadNodes, UploadsHost
from holdfast.experiment.uploads.publishing import EndedTrials, Publishing
from holdfast.experiment.uploads.waiting import (
    GONE,
    Caller,
    StorageQuestions,
    WaitingCheckpoint,
    WaitingCheckpoints,
)
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import RestartingService
from holdfast.runtime.tasks import first_of
from holdfast.runtime.wire import Message
from holdfast.scheduler.machine import Machine
from holdfast.schema import to_row
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.uploader.messages import (
    ANSWERS,
    Answer,
    CheckClaim,
    Close,
    Commit,
    Committed,
    Copied,
    Discard,
    Discarded,
    Done,
    Failed,
    Found,
    Kept,
    LookFor,
    NotCommitted,
    NoteEnded,
    Notice,
    OfCheckpoint,
    Opened,
    Order,
    Progress,
    Publish,
    Published,
    Remaining,
    Seen,
    SendFiles,
    SentEnded,
    Shared,
    Sign,
    Unanswered,
    UploadShare,
)
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed as CommittedEvent
from holdfast.trial.trial import (
    CheckpointRecord,
    Trial,
    TrialSpec,
    checkpoint_dirname,
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
        self._sync_period_s = sync.sync_period
        self._loop = asyncio.get_running_loop()
        self.nodes = UploadNodes(transport, host=host, where=where)
        self._waiting = WaitingCheckpoints(host.warn)
        self.questions = StorageQuestions(self.send, self.nodes.__contains__)
        # Checkpoints that nodes are removing, by trial and folder, with these nodes.
        self._leaving: dict[tuple[str, str], set[str]] = {}
        # Folders of checkpoints that lost nodes were uploading: a node may be cut off, and upload
        # until it has noticed. By folder, the trials of those that were removed meanwhile.
        self._cut_off: set[str] = set()
        self._removed: dict[str, str] = {}
        # By trial, the shares of the checkpoint with this number, which is about to be committed.
        self._shares: dict[str, tuple[int, Mapping[str, list[str]]]] = {}
        self._publishing = Publishing(
            journal_writer,
            send=self._order_publishing,
            begins=begins,
            sync=sync,
            is_timed=is_remote or self.nodes.has_nodes,
        )
        self._ended = EndedTrials(machine) if machine is not None and is_remote else None
        self._restores_artifacts = sync.restore_artifacts
        self.downloads_artifacts = sync.restore_artifacts and is_remote
        self._upload: UploadProgress | None = None
        self._close_order: Close | None = None
        self._moved_at = 0.0
        self._trouble = ""
        self._closed: asyncio.Future[list[str]] = self._loop.create_future()
        # Done once this run owns the storage, with the key of its claim.
        self.opened: asyncio.Future[str] = self._loop.create_future()

    def send(self, node: str, order: Order) -> None:
        """Send an order to the uploader of a node, "" for the owner's."""
        if node:
            self.nodes.send(node, order)
        else:
            self._uploader.send(to_row(order))

    @property
    def has_backlog(self) -> bool:
        return self._waiting.has_backlog

    def hold(self, answer: Callable[[], None]) -> None:
        """Call `answer` when the backlog is shorter. This slows reports down."""
        self._waiting.hold(answer)

    def hold_until_kept(
        self,
        trial_id: str,
        index: int,
        answer: Callable[[], None],
        refuse: Callable[[str], None],
    ) -> None:
        """Call `answer` once the checkpoint is in storage, or `refuse` if it cannot be."""
        caller = Caller(answer=answer, refuse=refuse)
        self._waiting.hold_until_kept((trial_id, index), caller)

    def age(self, now: float) -> StorageAge | None:
        """The data that is not in storage yet; None if nothing waits, as always with local
        storage."""
        if not self.is_remote and not self.nodes.has_nodes:
            return StorageAge(trouble=self._trouble) if self._trouble else None
        waiting = self._waiting.all()  # in one step, because another thread may call this
        oldest = min((item.since for item in waiting), default=now)
        if self.is_remote:
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
        """Order the commit of a checkpoint, unless it waits already."""
        key, folder = (spec.trial_id, record.index), f"{spec.dirname}/{record.dirname}"
        if key in self._waiting:
            return
        index, shares = self._shares.pop(spec.trial_id, (0, {}))
        shares = shares if index == record.index else {}
        look_for = LookFor(
            trial=spec.trial_id,
            index=record.index,
            folder=folder,
            iteration=record.iteration,
            time_total_s=record.time_total_s,
        )
        orders: dict[str, OfCheckpoint]
        if any(node not in self.nodes for node in shares or [record.node] if node):
            # It is of an earlier run, or the node was lost meanwhile.
            orders = {"": look_for}
        elif shares:
            orders = {
                node: UploadShare(
                    trial=spec.trial_id, index=record.index, folder=folder, left_out=left_out
                )
                for node, left_out in shares.items()
            }
        else:
            orders = {
                record.node: Commit(
                    trial=spec.trial_id,
                    index=record.index,
                    folder=folder,
                    iteration=record.iteration,
                    time_total_s=record.time_total_s,
                    stays_here=record.stays_here,
                )
            }
        item = WaitingCheckpoint(
            since=wall_time(),
            files=record.files,
            size_bytes=record.size_bytes,
            folder=folder,
            orders=orders,
            look_for=look_for,
            is_shared=bool(shares),
        )
        self._waiting.add(key, item)
        self._cut_off.discard(folder)
        if problem := next(filter(None, map(self.nodes.refusal, orders)), ""):
            # Later, because the report is not waiting for it yet.
            self._loop.call_soon(self._not_committed, "uncommitted", key, problem)
            return
        for node, order in orders.items():
            self.nodes.note_copy(node, folder, is_whole=not shares)
            self.send(node, order)

    def note_shares(self, trial_id: str, index: int, left_out: Mapping[str, list[str]]) -> None:
        """Each of these nodes has a share of a checkpoint that is about to be reported;
        `left_out` are files that another node has, too, and uploads."""
        self._shares[trial_id] = (index, left_out)

    async def committed(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Wait until the checkpoint does not wait any more for its uploader."""
        await self._waiting.done((spec.trial_id, record.index))

    async def download(self, spec: TrialSpec, node: str) -> None:
        """Let the node have the trial's output, and with `restore_artifacts` its other files.
        Raises StorageUnavailable."""
        await self.questions.download(spec, node, artifacts=self._restores_artifacts)

    async def hand_over(self, spec: TrialSpec, node: str = "") -> None:
        """Let the node, or the controller, send the trial's files for the last time. Raises
        StorageUnavailable."""
        if self.is_remote or node:  # otherwise they are in the storage already
            await self.questions.hand_over(spec, node)
            if (trials := self.nodes.trials_on(node)) is not None:
                trials.handed_over(spec.dirname)

    def release(self, has_ended: Callable[[str], bool], nodes: Collection[str]) -> None:
        """Let these nodes remove trials that have ended, by their ids, but for those with a
        checkpoint that waits."""
        waiting = {item.trial_folder for item in self._waiting.all()}
        self.nodes.release(lambda f, trial: f not in waiting and has_ended(trial), only=nodes)

    def discard(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Delete a checkpoint once the journal on the disk no longer names it.

        Otherwise a power cut could bring its record back.
        """
        self._waiting.done_with((spec.trial_id, record.index))
        self._discard(spec, [record.dirname])

    def discard_superseded(self, trial: Trial, kept: Collection[int]) -> None:
        """Delete checkpoints that an earlier incarnation superseded and had no time to delete."""
        gone = [
            n
            for n in range(first_number(trial.next_checkpoint), trial.next_checkpoint)
            if n not in kept
        ]
        if gone:
            self._discard(trial.spec, map(checkpoint_dirname, gone))

    def _discard(self, spec: TrialSpec, checkpoints: Iterable[str]) -> None:
        folders = [f"{spec.dirname}/{name}" for name in checkpoints]
        discard = partial(self._remove, spec.trial_id, folders)
        self._journal_writer.when_durable(discard)

    def _order_publishing(self, order: SendFiles | Publish) -> None:
        """Send an order of `Publishing`. Nodes upload the output of their trials with each
        publication."""
        if isinstance(order, SendFiles):
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
                self.send("", NoteEnded(fingerprints=found))
            for found in self._ended.written(journal.written):
                self.send("", NoteEnded(fingerprints=found, are_written=True))

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
        for item in self._waiting.at(node):
            self.send(node, item.orders[node])
        self.questions.ask_again(node)
        if (trials := self.nodes.trials_on(node)) is not None:
            trials.repeat()
        for (trial_id, folder), nodes in self._leaving.items():
            if node in nodes:
                self.send(node, Discard(trial=trial_id, folders=[folder]))

    # -- removals -----------------------------------------------------------------------------

    def _remove(self, trial_id: str, folders: Sequence[str]) -> None:
        """Remove checkpoints, first from the nodes where they lie.

        The owner's turn comes when these have answered: a node whose upload is under way would put
        the checkpoint into storage again.
        """
        for folder in folders:
            if holders := self.nodes.discard(trial_id, folder):
                self._leaving[trial_id, folder] = set(holders)
            if folder in self._cut_off:
                self._removed[folder] = trial_id
        owners = [folder for folder in folders if (trial_id, folder) not in self._leaving]
        if owners:
            self.send("", Discard(trial=trial_id, folders=owners))

    def _remove_again(self) -> None:
        """At the end: remove what nodes that were cut off have uploaded since it was removed."""
        for folder, trial_id in self._removed.items():
            if folder in self._cut_off:
                self.send("", Discard(trial=trial_id, folders=[folder]))

    def _discarded(self, node: str, trial_id: str, folder: str) -> None:
        nodes = self._leaving.get((trial_id, folder), set())
        if node in nodes:
            nodes.discard(node)
            if not nodes:
                del self._leaving[trial_id, folder]
                self.send("", Discard(trial=trial_id, folders=[folder]))

    def _discarded_all(self, node: str) -> None:
        """The node removes nothing any more."""
        for trial_id, folder in list(self._leaving):
            self._discarded(node, trial_id, folder)

    # -- nodes --------------------------------------------------------------------------------

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
        for item in self._waiting.move_to_owner(node):
            self._cut_off.add(item.folder)
            self.send("", item.look_for)
        self._discarded_all(node)

    def _lose_uploader(self, node: str, text: str) -> None:
        """The uploader of a node has failed for good, and the node is still there."""
        self.nodes.decide(node, text)
        self.questions.fail(node, text)
        self.nodes.closed(node, [text])
        for item in self._waiting.at(node):
            order = item.orders[node]
            why = f"on node {node}: {text}"
            self._not_committed("uncommitted", (order.trial, order.index), why)
        self._discarded_all(node)

    # -- answers ------------------------------------------------------------------------------

    def on_answer(self, message: Message, node: str = "") -> None:
        """Handle an answer of a node's uploader, or of the owner's. Raises ValueError if no
        uploader sends it."""
        answer: Answer = ANSWERS.read(message)
        on_node = f"on node {node}: " if node else ""
        match answer:
            case Committed():
                if self._is_awaited(answer, node, is_last=True):
                    self._on_committed((answer.trial, answer.index))
            case NotCommitted(why=why):
                if self._is_awaited(answer, node):
                    key = (answer.trial, answer.index)
                    self._not_committed(answer.name, key, f"{on_node}{why}")
            case Shared():
                if self._is_awaited(answer, node):
                    order = self._waiting.shared((answer.trial, answer.index), node, answer)
                    if order is not None:
                        self.send("", order)
            case Done() | Found() | Copied() | Unanswered():
                self.questions.answer(answer, node)
            case Notice():
                self._on_notice(answer.name, answer.text, node)
            case Failed(name=name, what=what, why=why):
                if name == "stuck":
                    self._host.warn(
                        f"Cannot delete the superseded checkpoint {what}: {on_node}{why}. Will "
                        f"retry"
                    )
                else:
                    self._trouble = f"{on_node}{why}"
                    self._host.warn(
                        f"storage gave up on {what}: {on_node}{why}. The local copy is kept",
                        "loss",
                    )
            case Sign(name="moving"):
                self._moved_at = self._loop.time()
            case _ if node:
                self._on_answer_of_node(answer, node)
            case _:
                self._on_answer_of_owner(answer)

    def _is_awaited(
        self, answer: Committed | NotCommitted | Shared, node: str, *, is_last: bool = False
    ) -> bool:
        """True if the checkpoint waits for this uploader. `is_last`: for no other one."""
        item = self._waiting.get((answer.trial, answer.index))
        if not node:
            return not isinstance(answer, Shared)
        if item is None or node not in item.orders:
            return False
        if isinstance(answer, Shared):
            return item.is_shared
        return not is_last or (item.orders.keys() == {node} and not item.is_shared)

    def _on_committed(self, key: tuple[str, int]) -> None:
        waiting = self._waiting.get(key)
        self._waiting.done_with(key)
        self._trouble = ""
        trial_id, index = key
        self._host.post(CommittedEvent(trial_id=trial_id, index=index))
        self._publishing.committed(None if waiting is None else waiting.trial_folder)

    def _not_committed(self, name: str, key: tuple[str, int], why: str) -> None:
        trial_id, index = key
        if name == "lost":
            self._waiting.done_with(key, why)
            self._host.lose(trial_id, index, why)
            return
        # Do not wait for it: it is on this disk, and a restore orders it again.
        self._waiting.done_with(
            key, f"the checkpoint is on this machine and not in storage: {why}"
        )
        self._trouble = why
        self._host.warn(
            f"checkpoint {index} of trial {trial_id} is not kept in storage: {why}. "
            f"The local copy stays",
            "loss",
        )

    def _on_notice(self, name: str, text: str, node: str) -> None:
        told = f"on node {node}: {text}" if node else text
        match name:
            case "warning":
                self._host.warn(told)
            case "trouble":
                self._trouble = told
                self._host.warn(f"storage: {told}")
            case "refused" if not node:
                self._host.lose_ownership(text)
            case "refused":  # only the owner can say that another run owns the storage
                self.send("", CheckClaim())
            case "blind":
                self.nodes.decide(node, text)
            case _:  # "gone"
                self._lose_uploader(node, text)

    def _on_answer_of_node(self, answer: Answer, node: str) -> None:
        match answer:
            case Discarded():
                for folder in answer.folders:
                    self._discarded(node, answer.trial, folder)
            case SentEnded():
                if (trials := self.nodes.trials_on(node)) is not None:
                    trials.sent(answer.folder)
            case Seen():
                self.nodes.find_token(node, answer, self.questions)
            case Sign():  # it was replaced
                self._repeat(node)
                self.nodes.close_again(node)
            case Remaining(name="closed"):
                self.nodes.closed(node, answer.lines)
            case Kept():
                self.nodes.kept(node, answer.place)
            case Progress() | Remaining():
                pass  # of one node; and its folder is removed at the end
            case _:
                raise ValueError(f"not an answer of a node: {answer.name}")

    def _on_answer_of_owner(self, answer: Answer) -> None:
        match answer:
            case Published():
                self._publishing.published(Position(answer.segment, answer.offset))
                self._trouble = ""
            case Remaining(name="left"):
                self._host.warn(_left(answer.lines))
            case Remaining():
                self._closed.set_result([*answer.lines])
            case Progress(files=files, total_files=total):
                name = f"{files:,} of {total:,} artifacts"
                done = UploadProgress(
                    name=name, done_bytes=answer.done_bytes, total_bytes=answer.total_bytes
                )
                self._upload = done if files < total else None
            case Opened():
                if not self.opened.done():  # a replacement opens it again
                    self.opened.set_result(answer.claim)
            case _:
                raise ValueError(f"not an answer of the owner: {answer.name}")

    def publish(self) -> None:
        """Publish the records so far, with the artifacts of all trials."""
        self._publishing.publish()

    def processes(self) -> list[Watched]:
        return self._uploader.processes()

    async def drain(self, deadline_s: float, *, is_patient: bool = False) -> None:
        """Wait until every checkpoint is committed, at most `deadline_s`, or if `is_patient` at
        most `deadline_s` without progress."""
        self._waiting.let_go()
        await self._wait_for([self._waiting.idle, self._uploader.ended], deadline_s, is_patient)

    async def close_nodes(self, deadline_s: float, *, is_patient: bool = False) -> None:
        """Finish the orders of nodes, and upload their trials' files. `close` returns what is not
        in storage. The owner publishes after it."""
        self.nodes.send_files(None, artifacts=True)
        over = self.nodes.close(Close(deadline_s=deadline_s, is_patient=is_patient))
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

    def waiting(self) -> list[str]:
        """The folders of checkpoints that are not committed yet, with where they are."""
        return [
            self.nodes.with_place(next(iter(item.orders), ""), item.folder)
            for item in self._waiting.all()
        ]

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
        self._remove_again()
        self._close_order = Close(deadline_s=deadline_s, is_patient=is_patient)
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
