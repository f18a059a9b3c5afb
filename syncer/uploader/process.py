"""The process of an uploader: receives orders over a connection and performs them in lanes.

Lanes run in parallel, and the orders of one lane in sequence. Each trial has a lane.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, assert_never

from holdfast.schema import to_row
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError, innermost
from holdfast.syncer.files.durable import wait_at_most
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.owned_store import ClaimLost
from holdfast.syncer.uploader.messages import (
    ORDERS,
    Answer,
    Asking,
    Check,
    CheckClaim,
    Close,
    Commit,
    Complete,
    Copied,
    Copy,
    Discard,
    Discarded,
    Done,
    Download,
    Failed,
    Fetch,
    Find,
    Found,
    HandOver,
    LookFor,
    NotCommitted,
    NoteEnded,
    Notice,
    OfCheckpoint,
    Open,
    Opened,
    Order,
    Publish,
    Release,
    Remaining,
    Reply,
    Seen,
    SendEnded,
    SendFiles,
    SentEnded,
    Sign,
    TakeToken,
    Unanswered,
    UploadShare,
)
from holdfast.syncer.uploader.uploader import Uploader

# Every other lane waits for it.
_OPEN = "open"
# How long the end waits if only removals are in progress.
_TIDY_S = 20.0
# Training has priority over hashing. Where Linux does not group processes by session, reports with
# 256 MiB each took 9 s on a busy machine, and 4 s with this (with 10, 3 s, but the commits took
# longer). Where it does, this has no effect, and the session keeps its priority: with a lower one,
# the commits took 27 s instead of 9.
_NICE = 5
_FILES = "send the trials' files"
_ARTIFACTS = "send the artifacts"
_AHEAD_S = 20.0


class Wire(Protocol):
    """The connection to the controller."""

    def send(self, message: list[Any]) -> None: ...

    def receive(self, timeout_s: float | None = None) -> list[Any] | None: ...


class Lanes:
    """A task group: at its end, `async with lanes` cancels the orders that are not done."""

    def __init__(self, send: Callable[[Answer], None]) -> None:
        """`send` sends the controller an answer."""
        self._send = send
        self._group = asyncio.TaskGroup()
        self._last: dict[str, asyncio.Task[None]] = {}
        # The orders in progress, each with what storage will lack without it; "" for a removal.
        self._under_way: dict[asyncio.Task[None], str] = {}
        # The failures, by lane and order, until the order succeeds.
        self.failed: dict[tuple[str, str], str] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._under_way):
            task.cancel()
        await self._group.__aexit__(None, None, None)  # without the error, it does not wrap it

    @property
    def under_way(self) -> Collection[asyncio.Task[None]]:
        """The orders that are being performed."""
        return self._under_way.keys()

    @property
    def needed(self) -> list[str]:
        """What storage would lack without the orders in progress, once each."""
        return [what for what in dict.fromkeys(self._under_way.values()) if what]

    def newest(self, lane: str) -> asyncio.Task[None] | None:
        """The lane's last order, if it is in progress."""
        return self._last.get(lane)

    def start(
        self,
        lane: str,
        what: str,
        work: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], Answer] | None = None,
        *,
        is_needed: bool = True,
    ) -> None:
        """Perform `work` after the lane's earlier orders. `on_failure` makes an answer from the
        reason; by default, one that names `what`."""
        failed = on_failure or (lambda why: Failed(name="failed", what=what, why=why))
        before = self._last.get(lane) or self._last.get(_OPEN)
        task = self._group.create_task(self._after(before, (lane, what), work, failed))
        self._last[lane] = task
        self._under_way[task] = what if is_needed else ""
        task.add_done_callback(lambda done: self._leave(lane, done))

    def start_asked(
        self, lane: str, ticket: str, what: str, ask: Callable[[], Awaitable[Reply]]
    ) -> None:
        """Start an order whose answer the start of a trial waits for."""
        self.start(lane, what, lambda: self._answer(ticket, ask))

    async def _answer(self, ticket: str, ask: Callable[[], Awaitable[Reply]]) -> None:
        """Send the answer, or that storage has not answered, or that another incarnation owns it.

        Storage may have a checkpoint, without which the trial would repeat epochs unnecessarily,
        or artifacts, which the trial would create anew and then replace in storage.
        """
        try:
            self._send(await ask())
        except Exception as error:
            why = reason_of(error)
            is_lost = isinstance(innermost(error), ClaimLost)
            lost, unanswered = Notice(name="refused", text=why), Unanswered(ticket=ticket, why=why)
            self._send(lost if is_lost else unanswered)

    async def settle(self, until: float, is_busy: Callable[[], bool]) -> None:
        """Wait while `is_busy()`, at most until the time `until`."""
        loop = asyncio.get_running_loop()
        while is_busy() and (left_s := until - loop.time()) > 0:
            tasks = list(self._under_way)
            await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _leave(self, lane: str, done: asyncio.Task[None]) -> None:
        self._under_way.pop(done)
        if self._last.get(lane) is done:
            del self._last[lane]

    async def _after(
        self,
        before: asyncio.Task[None] | None,
        key: tuple[str, str],
        work: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], Answer],
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await work()
        except Exception as error:  # the controller waits for an answer
            if isinstance(innermost(error), ClaimLost):
                self._send(Notice(name="refused", text=reason_of(error)))
                return
            self.failed[key] = f"{key[1]}: {reason_of(error)}"
            self._send(on_failure(reason_of(error)))
        else:
            self.failed.pop(key, None)


def reason_of(error: Exception) -> str:
    """The text of an error; it begins with the type unless the error is holdfast's own."""
    inner = innermost(error)
    known = isinstance(inner, (StorageError, OSError))
    return str(inner) if known else f"{type(inner).__name__}: {inner}"


class UploaderProcess:
    """Receives orders from a connection and performs them in parallel."""

    def __init__(self, wire: Wire, settings: UploaderSettings | None = None) -> None:
        """`settings` is None if the controller sends them, to an uploader in another process."""
        self._wire = wire
        self._settings = settings
        self._opened: Uploader | None = None
        self._lanes = Lanes(self._send)
        # By the folder, the checkpoints whose commit has not succeeded.
        self._uncommitted: dict[str, Commit] = {}
        self._moved_at = 0.0
        # The publications that were ordered, each with the checkpoints to remove after it.
        self._to_publish: list[tuple[Position, int, tuple[str, ...]]] = []
        # The folders whose files are to be sent (None: all), each with whether artifacts are.
        self._to_send: dict[str | None, bool] = {}

    @property
    def under_way(self) -> Collection[asyncio.Task[None]]:
        """The orders that are being performed."""
        return self._lanes.under_way

    @property
    def _uploader(self) -> Uploader:
        assert self._opened is not None
        return self._opened

    async def serve(self) -> None:
        """Serve until "close" is received, or the controller is gone."""
        inbox: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, inbox), daemon=True).start()
        async with self._lanes:
            if self._settings is not None:
                self._begin(self._settings)
            while (message := await inbox.get()) is not None:
                order: Order = ORDERS.read(message)
                if isinstance(order, Close):
                    await self._finish(order)
                    break
                self._order(order)
        if message is not None and self._opened is not None:
            await self._seal_left()
            await self._opened.close()

    def _read(self, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[Any]) -> None:
        while True:
            message = self._wire.receive()
            loop.call_soon_threadsafe(inbox.put_nowait, message)
            if message is None or message[0] == "close":
                return  # there are no further messages

    def _send(self, answer: Answer) -> None:
        if isinstance(answer, Sign):
            self._moved_at = asyncio.get_running_loop().time()
        with suppress(ConnectionError):  # the controller is gone, and this process ends next
            self._wire.send(to_row(answer))

    def _begin(self, settings: UploaderSettings) -> None:
        wait_at_most(
            settings.disk_deadline_s, lambda text: self._send(Notice(name="warning", text=text))
        )
        self._opened = Uploader(settings, self._send)
        self._lanes.start(_OPEN, "open the storage", self._open)

    async def _open(self) -> None:
        try:
            answer = await self._found()
        except Exception as error:
            # Without the storage nothing can be uploaded: inform the controller at once.
            name: Any = "blind" if self._uploader.is_of_node else "refused"
            answer = Notice(name=name, text=reason_of(error))
        self._send(answer)

    async def _found(self) -> Answer:
        """Open the storage, or on a node show that it is there."""
        if self._uploader.is_of_node:
            key, content = await self._uploader.put_token()
            return Seen(key=key, content=content)
        claim = await self._uploader.open()
        return Opened(claim="" if claim is None else claim.key)

    def _order(self, order: Order) -> None:
        """Start an order. Each trial has a lane, which keeps its orders in sequence."""
        match order:
            case Open():
                # From the controller that started this process, over a private socket pair, or
                # from the agent that did; the controller has written the settings.
                settings: UploaderSettings = pickle.loads(order.settings)
                if order.node:
                    settings = replace(settings, root=Path(order.root), node=order.node)
                self._begin(settings)
            case Commit() | LookFor() | UploadShare() | Complete():
                self._order_checkpoint(order)
            case Fetch() | Find() | Check() | Copy() | Download() | HandOver() | TakeToken():
                self._order_asked(order)
            case Discard():
                # Now and not in the lane: a publication that is ordered later relies on it.
                self._uploader.mark_for_removal(order.folders)
                what = f"remove {order.folders[0]}"
                discard = partial(self._discard, what, order)
                self._lanes.start(order.trial, what, discard, is_needed=False)
            case SendFiles():
                self._order_files(order)
            case SendEnded():
                self._lanes.start(_FILES, _FILES, partial(self._send_ended, order.folder))
            case Release():
                release = partial(self._uploader.release_trial, order.folder)
                self._lanes.start(_FILES, f"release {order.folder}", release)
            case Publish():
                end, pending = Position(order.segment, order.offset), self._uploader
                self._to_publish.append((end, order.begins, pending.take_pending_removals()))
                if len(self._to_publish) == 1:  # otherwise a waiting task will publish this, too
                    self._lanes.start("publish", "publish the records", self._publish)
            case NoteEnded():
                self._uploader.note_ended(order.fingerprints, are_written=order.are_written)
            case CheckClaim():
                self._lanes.start("check", "check the claim", self._uploader.check_claim)
            case Close():
                raise AssertionError("`serve` ends with it")
            case _:
                assert_never(order)

    def _order_checkpoint(self, order: OfCheckpoint) -> None:
        whole = order.whole
        if isinstance(order, Commit):
            self._uncommitted[order.folder] = order
        self._lanes.start(
            whole.trial,
            whole.folder,
            partial(self._perform, order),
            on_failure=lambda why: NotCommitted(
                name="uncommitted", trial=whole.trial, index=whole.index, why=why
            ),
        )

    async def _perform(self, order: OfCheckpoint) -> None:
        uploader = self._uploader
        match order:
            case Commit():
                await uploader.commit(order)
                self._uncommitted.pop(order.folder, None)
            case LookFor():
                await uploader.look_for(order)
            case UploadShare():
                await uploader.upload_share(order)
            case Complete():
                await uploader.complete(order)

    def _order_asked(self, order: Asking) -> None:
        lane, what = order.ticket, "a node's token"
        if isinstance(order, HandOver):
            lane = _FILES
        if isinstance(order, Copy):
            what = order.target
        elif not isinstance(order, TakeToken):
            what = order.folder
        self._lanes.start_asked(lane, order.ticket, what, partial(self._reply, order))

    async def _reply(self, order: Asking) -> Reply:
        uploader, ticket, problem = self._uploader, order.ticket, ""
        match order:
            case Fetch():
                try:
                    await uploader.fetch(order.folder)
                except (NotStored, ManifestMismatch) as error:
                    problem = str(error)
            case Find():
                found = await uploader.find(order.trial, order.folder, order.first)
                return Found(ticket=ticket, checkpoints=found)
            case Check():
                problem = await uploader.problem_with(order.folder, committed=order.committed)
            case Copy():
                staged = await uploader.copy(order.source, order.target)
                return Copied(ticket=ticket, files=staged.files, size_bytes=staged.bytes)
            case Download():
                await uploader.download_artifacts(order.folder, all_files=order.artifacts)
            case HandOver():
                await uploader.hand_over(order.folder)
            case TakeToken():
                problem = await uploader.take_token(order.key, order.content)
        return Done(ticket=ticket, problem=problem)

    async def _seal_left(self) -> None:
        """On a node, which keeps what is not in storage: seal the checkpoints whose turn had not
        come. The agent ends this process if it takes too long."""
        if self._uploader.is_of_node:
            for order in self._uncommitted.values():
                with suppress(StorageError, OSError):
                    await self._uploader.seal(order)

    async def _discard(self, what: str, order: Discard) -> None:
        for folder in order.folders:  # storage does not lack a superseded checkpoint
            self._lanes.failed.pop((order.trial, folder), None)
            self._uncommitted.pop(folder, None)
        try:
            await self._uploader.remove_here(order.folders)
        except Exception as error:
            # Reported now, but not listed at the end: storage does not lack it.
            self._send(Failed(name="failed", what=what, why=reason_of(error)))
        if self._uploader.is_of_node:
            # The owner may remove them from storage: no commit of them is in progress here.
            self._send(Discarded(trial=order.trial, folders=[*order.folders]))

    # -- files --------------------------------------------------------------------------------

    def _order_files(self, order: SendFiles) -> None:
        is_first = not self._to_send
        folders: Sequence[str | None] = [None] if order.folders is None else order.folders
        for folder in folders:
            self._to_send[folder] = self._to_send.get(folder, False) or order.artifacts
        if is_first and folders:  # otherwise a waiting task will send these, too
            what = _FILES if self._uploader.is_of_node else _ARTIFACTS
            self._lanes.start(_FILES, what, self._send_files)

    async def _send_files(self) -> None:
        """Send the files of all trials that were ordered so far."""
        wanted, self._to_send = self._to_send, {}
        if None in wanted:
            await self._uploader.send_files(None, artifacts=wanted[None])
            return
        for artifacts in (False, True):
            folders = sorted(name for name in wanted if name and wanted[name] is artifacts)
            if folders:
                await self._uploader.send_files(folders, artifacts=artifacts)

    async def _send_ended(self, folder: str) -> None:
        await self._uploader.send_files([folder], artifacts=True)
        self._send(SentEnded(folder=folder))

    async def _publish(self) -> None:
        """Publish everything that was ordered so far in one publication: otherwise they would pile
        up if storage is slower than their period.

        It first waits for artifacts that were ordered earlier, at most `_AHEAD_S`, so that a
        restore from the published records finds them.
        """
        if ahead := self._lanes.newest(_FILES):
            await asyncio.wait([ahead], timeout=_AHEAD_S)
        end, begins, _ = max(self._to_publish)
        pending = [folder for _, _, folders in self._to_publish for folder in folders]
        self._to_publish.clear()
        try:
            await self._uploader.publish(end, begins)
        except BaseException:
            self._uploader.mark_for_removal(pending)
            raise
        # In a separate lane: no later publication waits for a removal that fails.
        self._lanes.start("remove", "remove", lambda: self._remove(pending), is_needed=False)

    async def _remove(self, pending: list[str]) -> None:
        await self._uploader.remove_here()  # retry the removals on this machine
        await self._uploader.remove_stored(pending)

    # -- the end ------------------------------------------------------------------------------

    async def _finish(self, order: Close) -> None:
        """Finish the orders in progress; at the deadline, report those that are not done. If it is
        patient, the deadline counts from the last progress."""
        loop, lanes = asyncio.get_running_loop(), self._lanes
        end = loop.time() + order.deadline_s
        await lanes.settle(end, lambda: bool(lanes.needed))
        while order.is_patient and lanes.needed:
            if (end := self._moved_at + order.deadline_s) <= loop.time():
                break
            await lanes.settle(end, lambda: bool(lanes.needed))
        late = self._late() if lanes.needed else []
        tidy_by = min(end, loop.time() + _TIDY_S)
        await lanes.settle(tidy_by, lambda: bool(lanes.under_way))
        if (uploader := self._opened) is not None:
            if not lanes.under_way:
                with suppress(TimeoutError, StorageError):  # `left` lists the rest
                    async with asyncio.timeout_at(max(tidy_by, loop.time() + 1)):
                        await uploader.tidy()
            if left := uploader.left:
                self._send(Remaining(name="left", lines=left))
            if left_out := uploader.left_out:
                self._send(Notice(name="warning", text=left_out))
        # Sent before anything is closed, because closing may take long.
        self._send(Remaining(name="closed", lines=[*lanes.failed.values(), *late]))

    def _late(self) -> list[str]:
        """The orders that are not done, with the reason if there is one."""
        reasons = self._uploader.unfinished
        told = [f"{what}: {reason}" for what, reason in reasons.items()]
        waiting = [
            f"{what}: not done yet"
            for what in self._lanes.needed
            if not any(what in known for known in reasons)
        ]
        return told + waiting


def main(wire: Wire, settings: UploaderSettings | None = None) -> None:
    """Main function of the uploader's process, or of its thread if `settings` has no pickle."""
    import uvloop

    if settings is None:
        os.nice(_NICE)
    uvloop.run(UploaderProcess(wire, settings).serve())
