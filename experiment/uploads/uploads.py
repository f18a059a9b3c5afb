"""The controller's side of the uploader process: orders for checkpoints and records, and
answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from holdfast.experiment.progress.summary import StorageAge, UploadProgress
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.uploads.host import UploadsHost
from holdfast.experiment.uploads.keeper_routes import KeeperRoutes
from holdfast.experiment.uploads.node_keepers import NodeKeepers, NodeTransport
from holdfast.experiment.uploads.publishing import Publishing
from holdfast.experiment.uploads.waiting import Caller, WaitingCheckpoints
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import RestartingService
from holdfast.runtime.tasks import first_of
from holdfast.runtime.wire import Message
from holdfast.scheduler.machine import Machine
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.journal.journal import Position
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed
from holdfast.trial.trial import (
    CheckpointRecord,
    Trial,
    TrialSpec,
    checkpoint_dirname,
    first_number,
)

_SHOWN_LEFT = 20
# So many in a message.
_AT_ONCE = 10_000


class Uploads:
    """Sends the keepers their orders, and turns their answers into events and messages.

    The uploader owns the storage. A checkpoint that lies on a node is the business of that node's
    keeper (`nodes`); if the node is lost, the uploader looks for it in storage. Everything that a
    keeper has not answered is repeated to the one that replaces it.
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
        self.nodes = NodeKeepers(transport, host=host, where=where)
        self._waiting = WaitingCheckpoints(host.warn)
        self.routes = KeeperRoutes(
            self.nodes, self._waiting, to_owner=uploader.send, heard=self.on_uploader
        )
        self.questions = self.routes.questions
        self._publishing = Publishing(
            journal_writer,
            send=self._order_publishing,
            begins=begins,
            sync=sync,
            is_timed=is_remote or self.nodes.has_nodes,
        )
        self._ended = EndedTrials(machine) if machine is not None and is_remote else None
        self._restores_artifacts = sync.restore_artifacts
        self.brings_artifacts = sync.restore_artifacts and is_remote
        self._upload: UploadProgress | None = None
        self._close_order: Message | None = None
        self._moved_at = 0.0
        self._trouble = ""
        self._closed: asyncio.Future[list[str]] = self._loop.create_future()
        # Done once this run owns the storage, with the key of its claim.
        self.opened: asyncio.Future[str] = self._loop.create_future()

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
        if (spec.trial_id, record.index) not in self._waiting:
            self.routes.commit(spec, record, since=wall_time())

    async def committed(self, spec: TrialSpec, record: CheckpointRecord) -> None:
        """Wait until the checkpoint does not wait any more for its keeper."""
        await self._waiting.done((spec.trial_id, record.index))

    async def bring(self, spec: TrialSpec, node: str) -> None:
        """Let the node have the trial's output, and with `restore_artifacts` its other files.
        Raises StorageUnavailable."""
        await self.questions.bring(spec, node, artifacts=self._restores_artifacts)

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
        discard = partial(self.routes.discard, spec.trial_id, folders)
        self._journal_writer.when_durable(discard)

    def _order_publishing(self, message: Message) -> None:
        """Send an order of `Publishing`. Nodes upload the output of their trials with each
        publication."""
        match message:
            case ["artifacts", folders]:
                self.nodes.mirror(folders, artifacts=True)
            case _:
                self.nodes.mirror(None, artifacts=False)
                self._tell_ended()
        self._uploader.send(message)

    def _tell_ended(self) -> None:
        """Before a publication: whose folders storage may have as they are."""
        if self._ended is not None:
            journal = self._journal_writer
            for words in self._ended.news(journal.position):
                self._uploader.send(["ended", words])
            for words in self._ended.written(journal.written):
                self._uploader.send(["written", words])

    def resend_state(self) -> None:
        """Repeat the waiting orders for an uploader that replaces one that died."""
        self.routes.repeat()
        self._upload = None
        if self._ended is not None:
            self._ended.forget()
        self._publishing.order_again()
        if self._close_order is not None:
            self._uploader.send(self._close_order)

    def on_uploader(self, message: Message) -> None:
        match message:
            case ["committed", str(trial_id), int(index)]:
                waiting = self._waiting.get((trial_id, index))
                self._waiting.done_with((trial_id, index))
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
                self._waiting.done_with(
                    (trial_id, index),
                    f"the checkpoint is on this machine and not in storage: {text}",
                )
                self._trouble = text
                self._host.warn(
                    f"checkpoint {index} of trial {trial_id} is not kept in storage: {text}. "
                    f"The local copy stays",
                    "loss",
                )
            case ["lost", str(trial_id), int(index), str(text)]:
                self._waiting.done_with((trial_id, index), text)
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
            case [
                "fetched" | "found" | "unanswered" as name,
                str(ticket),
                str() | list() as answer,
            ]:
                self.questions.answer(name, ticket, answer)
            case ["warning", str(text)]:
                self._host.warn(text)
            case ["progress", int(files), int(total), int(done_bytes), int(total_bytes)]:
                name = f"{files:,} of {total:,} artifacts"
                done = UploadProgress(name=name, done_bytes=done_bytes, total_bytes=total_bytes)
                self._upload = done if files < total else None
            case ["opened", str(claim)]:
                if not self.opened.done():  # a replacement opens it again
                    self.opened.set_result(claim)
            case ["refused", str(text)]:
                self._host.lose_ownership(text)
            case ["closed", list(failed)]:
                self._closed.set_result(failed)
            case _:
                raise ValueError(f"not a message of the uploader: {message!r:.100}")

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
        self.nodes.mirror(None, artifacts=True)
        over = self.nodes.close(["close", deadline_s, is_patient])
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
        self.routes.discard_again()
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
        await self._uploader.close(has_finished=self._closed.done())
        return [*self.nodes.unsaved(), *failed]


def _left(lines: list[str]) -> str:
    """A warning about superseded checkpoints that are still there at the end."""
    listed = "\n  ".join(lines[:_SHOWN_LEFT])
    more = f"\n  and {len(lines) - _SHOWN_LEFT} more" if len(lines) > _SHOWN_LEFT else ""
    return (
        f"superseded checkpoints could not be removed. A restore of the experiment, or "
        f"`holdfast doctor gc`, removes them:\n  {listed}{more}"
    )


class EndedTrials:
    """The ended trials that the uploader was told of, each as the value that it had then.

    An event that concerns a trial makes another value of it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._boot = boot_id()
        self._told: dict[str, Trial] = {}
        # Those whose files may not be written yet, with the journal's end when `news` had them.
        self._waiting: dict[str, Position] = {}

    def forget(self) -> None:
        """A new uploader knows of none."""
        self._told.clear()
        self._waiting.clear()

    def news(self, end: Position) -> Iterator[dict[str, str]]:
        """The folders of trials that have ended, with a word for each that differs if the trial
        has run again; "" for those that run again now. `end` is the journal's end now."""
        return _in_parts(self._news(end))

    def _news(self, end: Position) -> Iterator[tuple[str, str]]:
        for trial_id, trial in self._machine.trials.items():
            told = self._told.get(trial_id)
            if told is trial:
                continue
            if self._has_ended(trial):
                self._told[trial_id] = trial
                self._waiting[trial_id] = end
                yield trial.spec.dirname, self._word(trial)
            elif told is not None:
                del self._told[trial_id]
                self._waiting.pop(trial_id, None)
                yield trial.spec.dirname, ""

    def _has_ended(self, trial: Trial) -> bool:
        """Whether nothing more comes into its folder, neither of its worker nor of its uploads."""
        is_committed = all(checkpoint.committed for checkpoint in trial.checkpoints)
        return is_committed and self._machine.has_left(trial)

    def written(self, written: Position) -> Iterator[dict[str, str]]:
        """Those of the told folders whose files are written by now, with their words: all files of
        trials are as the journal up to this position."""
        done = [trial_id for trial_id, end in self._waiting.items() if end <= written]
        for trial_id in done:
            del self._waiting[trial_id]
        told = (self._told[trial_id] for trial_id in done)
        return _in_parts((trial.spec.dirname, self._word(trial)) for trial in told)

    def _word(self, trial: Trial) -> str:
        """After another boot the projector writes all files anew."""
        now = (trial.status.name, trial.attempt, trial.iteration, trial.reported_at)
        return " ".join(map(str, (*now, trial.place.pid, self._boot)))


def _in_parts(words: Iterator[tuple[str, str]]) -> Iterator[dict[str, str]]:
    while part := dict(islice(words, _AT_ONCE)):
        yield part
