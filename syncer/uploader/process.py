"""The uploader's process: receives orders over a connection and performs them in parallel.

orders:   ["open", pickled UploaderSettings]
          ["commit", trial, index, folder, iteration, training time in seconds]
          ["seal", trial, index, folder, iteration, training time in seconds]
          ["discard", trial, [folder, ...]]  ["fetch", ticket, folder]
          ["find", ticket, trial, trial's folder, name of the first checkpoint]
          ["publish", segment, offset, begins]  ["artifacts", [folder, ...] or None for all]
          ["bring", ticket, folder]
          ["close", deadline_s, whether progress extends the deadline]
answers:  ["opened", key of the claim]  ["warning", text]  ["committed", trial, index]
          ["published", segment, offset]  ["moving"]  ["trouble", text]
          ["fetched", ticket, error]  ["unanswered", ticket, text]  ["refused", text]
          ["found", ticket, [[name, iteration, training time, files, bytes], ...]]
          ["progress", files, files in all, bytes, bytes in all]
          ["uncommitted", trial, index, text]  ["lost", trial, index, text]
          ["failed", what, text]  ["stuck", where, why]
          ["left", [text, ...]]  ["closed", [text, ...]]
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError, innermost
from holdfast.syncer.files.disk_deadline import wait_at_most
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.owned_store import ClaimLost
from holdfast.syncer.uploader.lanes import OPEN, Lanes, reason_of
from holdfast.syncer.uploader.uploader import Uploader

# How long the end waits if only removals are in progress.
_TIDY_S = 20.0
_ARTIFACTS = "send the artifacts"
_AHEAD_S = 20.0


class Wire(Protocol):
    """The connection to the controller."""

    def send(self, message: list[Any]) -> None: ...

    def receive(self, timeout_s: float | None = None) -> list[Any] | None: ...


class UploaderProcess:
    """Receives orders from a connection and performs them in parallel."""

    def __init__(self, wire: Wire, settings: UploaderSettings | None = None) -> None:
        """`settings` is None if the controller sends them, to an uploader in another process."""
        self._wire = wire
        self._settings = settings
        self._uploader: Uploader | None = None
        self._lanes = Lanes(self._send)
        self._asked: list[tuple[Position, int, tuple[str, ...]]] = []
        self._wanted: list[list[str] | None] = []
        self._moved_at = 0.0

    @property
    def under_way(self) -> Collection[asyncio.Task[None]]:
        """The orders that are being performed."""
        return self._lanes.under_way

    async def serve(self) -> None:
        """Serve until "close" is received, or the controller is gone."""
        inbox: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, inbox), daemon=True).start()
        async with self._lanes:
            if self._settings is not None:
                self._begin(self._settings)
            while (message := await inbox.get()) is not None:
                if message[0] == "close":
                    _, deadline_s, is_patient = message
                    await self._finish(deadline_s, is_patient=is_patient)
                    break
                self._order(message)
        if message is not None and self._uploader is not None:
            await self._uploader.close()

    def _read(self, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[Any]) -> None:
        while True:
            message = self._wire.receive()
            loop.call_soon_threadsafe(inbox.put_nowait, message)
            if message is None or message[0] == "close":
                return  # there are no further messages

    def _order(self, message: list[Any]) -> None:
        """Start an order. Each trial has a lane, which keeps its orders in sequence."""
        match message:
            case ["open", bytes(settings)]:
                # From the controller that started this process, over a private socket pair.
                self._begin(pickle.loads(settings))
            case [
                "commit" | "seal" as how,
                str(trial_id),
                int(index),
                str(folder),
                int(iteration),
                float() | int() as time_total_s,
            ]:
                uploader = self._require_uploader()
                progress = TrialProgress(
                    trial_id=trial_id, iteration=iteration, time_total_s=time_total_s
                )
                self._lanes.start(
                    trial_id,
                    folder,
                    lambda: uploader.commit(
                        trial_id, index, folder, progress=progress, uploads=how == "commit"
                    ),
                    on_failure=lambda text: ["uncommitted", trial_id, index, text],
                )
            case ["discard", str(trial_id), list(folders)]:
                uploader = self._require_uploader()
                # Now and not in the lane: a publication that is ordered later relies on it.
                uploader.mark_for_removal(folders)
                what = f"remove {folders[0]}"
                discard = partial(self._discard, trial_id, what, folders)
                self._lanes.start(trial_id, what, discard, is_needed=False)
            case ["fetch", str(ticket), str(folder)]:
                self._start_asked(ticket, folder, partial(self._fetch, ticket, folder))
            case ["find", str(ticket), str(trial_id), str(folder), str(first)]:
                find = partial(self._find, ticket, trial_id, folder, first)
                self._start_asked(ticket, folder, find)
            case ["artifacts", list() | None as trials]:
                self._wanted.append(trials)
                if len(self._wanted) == 1:  # otherwise a waiting task will send these, too
                    self._lanes.start(_ARTIFACTS, _ARTIFACTS, self._send_artifacts)
            case ["bring", str(ticket), str(folder)]:
                self._start_asked(ticket, folder, partial(self._bring, ticket, folder))
            case ["publish", int(segment), int(offset), int(begins)]:
                end = Position(segment, offset)
                self._asked.append((end, begins, self._require_uploader().take_pending_removals()))
                if len(self._asked) == 1:  # otherwise a waiting task will publish this, too
                    self._lanes.start("publish", "publish the records", self._publish)
            case _:
                raise ValueError(f"not an order: {message!r:.200}")

    def _begin(self, settings: UploaderSettings) -> None:
        wait_at_most(settings.disk_deadline_s, lambda text: self._send(["warning", text]))
        self._uploader = Uploader(settings, self._told)
        self._lanes.start(OPEN, "open the storage", self._open)

    def _send(self, message: list[Any]) -> None:
        with suppress(ConnectionError):  # the controller is gone, and this process ends next
            self._wire.send(message)

    def _require_uploader(self) -> Uploader:
        assert self._uploader is not None
        return self._uploader

    async def _open(self) -> None:
        try:
            claim = await self._require_uploader().open()
        except Exception as error:
            # Without the storage nothing can be uploaded: inform the controller at once.
            self._send(["refused", reason_of(error)])
        else:
            self._send(["opened", "" if claim is None else claim.key])

    async def _send_artifacts(self) -> None:
        """Send the artifacts of all trials that were ordered so far."""
        wanted, self._wanted = self._wanted, []
        chosen = (
            None if None in wanted else sorted({name for names in wanted for name in names or ()})
        )
        await self._require_uploader().send_artifacts(chosen)

    async def _publish(self) -> None:
        """Publish everything that was ordered so far in one publication: otherwise they would pile
        up if storage is slower than their period.

        It first waits for artifacts that were ordered earlier, at most `_AHEAD_S`, so that a
        restore from the published records finds them.
        """
        if ahead := self._lanes.newest(_ARTIFACTS):
            await asyncio.wait([ahead], timeout=_AHEAD_S)
        end, begins, _ = max(self._asked)
        pending = [folder for _, _, folders in self._asked for folder in folders]
        self._asked.clear()
        uploader = self._require_uploader()
        try:
            await uploader.publish(end, begins)
        except BaseException:
            uploader.mark_for_removal(pending)
            raise
        # In a separate lane: no later publication waits for a removal that fails.
        self._lanes.start("remove", "remove", lambda: self._remove(pending), is_needed=False)

    async def _remove(self, pending: list[str]) -> None:
        await self._require_uploader().discard()  # retry the removals on this machine
        await self._require_uploader().remove(pending)

    async def _discard(self, trial_id: str, what: str, folders: list[str]) -> None:
        for folder in folders:  # storage does not lack a superseded checkpoint
            self._lanes.failed.pop((trial_id, folder), None)
        try:
            await self._require_uploader().discard(folders)
        except Exception as error:
            # Reported now, but not listed at the end: storage does not lack it.
            self._send(["failed", what, reason_of(error)])

    async def _fetch(self, ticket: str, folder: str) -> list[Any]:
        try:
            await self._require_uploader().fetch(folder)
        except (NotStored, ManifestMismatch) as error:
            return ["fetched", ticket, str(error)]
        return ["fetched", ticket, ""]

    async def _find(self, ticket: str, trial_id: str, folder: str, first: str) -> list[Any]:
        return ["found", ticket, await self._require_uploader().find(trial_id, folder, first)]

    async def _bring(self, ticket: str, folder: str) -> list[Any]:
        await self._require_uploader().bring_artifacts(folder)
        return ["fetched", ticket, ""]

    def _start_asked(self, ticket: str, folder: str, ask: Callable[[], Awaitable[Any]]) -> None:
        """Start an order whose answer the start of a trial waits for."""
        self._lanes.start(ticket, folder, partial(self._answer, ticket, ask))

    async def _answer(self, ticket: str, ask: Callable[[], Awaitable[list[Any]]]) -> None:
        """Send the answer, or that storage has not answered, or that another incarnation owns it.

        Storage may have a checkpoint, without which the trial would repeat epochs unnecessarily,
        or artifacts, which the trial would create anew and then replace in storage.
        """
        try:
            answer = await ask()
        except Exception as error:
            is_lost = isinstance(innermost(error), ClaimLost)
            answer = ["refused"] if is_lost else ["unanswered", ticket]
            answer.append(reason_of(error))
        self._send(answer)

    def _told(self, message: list[Any]) -> None:
        """Handle a message of the uploader for the controller."""
        if message == ["moving"]:
            self._moved_at = asyncio.get_running_loop().time()
        self._send(message)

    async def _finish(self, deadline_s: float, *, is_patient: bool) -> None:
        """Finish the orders in progress; at the deadline, report those that are not done. With
        `is_patient` the deadline counts from the last progress."""
        loop, lanes = asyncio.get_running_loop(), self._lanes
        end = loop.time() + deadline_s
        await lanes.settle(end, lambda: bool(lanes.needed))
        while is_patient and lanes.needed:
            if (end := self._moved_at + deadline_s) <= loop.time():
                break
            await lanes.settle(end, lambda: bool(lanes.needed))
        late = self._late() if lanes.needed else []
        tidy_by = min(end, loop.time() + _TIDY_S)
        await lanes.settle(tidy_by, lambda: bool(lanes.under_way))
        if self._uploader is not None and not lanes.under_way:
            with suppress(TimeoutError, StorageError):  # `left` lists the rest
                async with asyncio.timeout_at(max(tidy_by, loop.time() + 1)):
                    await self._uploader.tidy()
        if self._uploader is not None and (left := self._uploader.left):
            self._send(["left", left])
        if self._uploader is not None and (left_out := self._uploader.left_out):
            self._send(["warning", left_out])
        # Sent before anything is closed, because closing may take long.
        self._send(["closed", [*lanes.failed.values(), *late]])

    def _late(self) -> list[str]:
        """The orders that are not done, with the reason if there is one."""
        reasons = self._require_uploader().unfinished
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

    uvloop.run(UploaderProcess(wire, settings).serve())
