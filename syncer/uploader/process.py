"""The process of a keeper: receives orders over a connection and performs them in parallel.

There is one for the controller's tree, the uploader, and one for each node. In the orders, `trial`
is an id, `folder` a path in the experiment's folder, and a `ticket` identifies the answer.

orders:   ["open", pickled UploaderSettings], on a node with two more: the node's tree, its name
          ["commit", trial, index, folder, iteration, training time in seconds]
          ["seal", trial, index, folder, iteration, training time in seconds]
          ["discard", trial, [folder, ...]]  ["fetch", ticket, folder]
          ["find", ticket, trial, trial's folder, name of the first checkpoint]
          ["bring", ticket, folder], with False at the end only the trial's output
          ["hand_over", ticket, folder]
          ["close", deadline_s, whether progress extends the deadline]
the uploader's:
          ["publish", segment, offset, begins]  ["artifacts", [folder, ...] or None for all]
          ["look", trial, index, folder, iteration, training time in seconds]
          ["witness", ticket, key, content]  ["check"]
          ["complete", trial, index, folder, {file: [size, checksum]}, [empty folder, ...],
           iteration, training time in seconds]
a node's: ["have", ticket, folder, whether it was committed]  ["copy", ticket, from, to]
          ["mirror", [trial's folder, ...], whether with artifacts]
          ["share", trial, index, folder, [file of another node's share, ...]]
          ["send_ended", trial's folder]  ["release", trial's folder]
answers:  ["opened", key of the claim]  ["warning", text]  ["committed", trial, index]
          ["published", segment, offset]  ["moving"]  ["trouble", text]
          ["fetched", ticket, error]  ["unanswered", ticket, text]  ["refused", text]
          ["found", ticket, [[name, iteration, training time, files, bytes], ...]]
          ["progress", files, files in all, bytes, bytes in all]
          ["uncommitted", trial, index, text]  ["lost", trial, index, text]
          ["failed", what, text]  ["stuck", where, why]
          ["left", [text, ...]]  ["closed", [text, ...]]
a node's: ["seen", key, content of its token]  ["blind", text]  ["copied", ticket, files, bytes]
          ["discarded", trial, [folder, ...]]  ["sent_ended", trial's folder]
          ["shared", trial, index, {file: [size, checksum]}, [empty folder, ...]]
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint.manifest import FileFact, Manifest, TrialProgress
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError
from holdfast.syncer.files.durable import wait_at_most
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.uploader.lanes import OPEN, Lanes, reason_of
from holdfast.syncer.uploader.node_keeper import NodeKeeper
from holdfast.syncer.uploader.uploader import Uploader

# How long the end waits if only removals are in progress.
_TIDY_S = 20.0
# Training has priority over hashing. Where Linux does not group processes by session, reports with
# 256 MiB each took 9 s on a busy machine, and 4 s with this (with 10, 3 s, but the commits took
# longer). Where it does, this has no effect, and the session keeps its priority: with a lower one,
# the commits took 27 s instead of 9.
_NICE = 5
_MIRROR = "send the trials' files"
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
        self._role: OwnerOrders | NodeOrders | None = None
        self._lanes = Lanes(self._send)
        # By the folder, the checkpoints whose commit has not succeeded.
        self._uncommitted: dict[str, TrialProgress] = {}
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
        if message is not None and self._role is not None:
            await self._seal_left()
            await self._keeper.close()

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
            case ["open", bytes(settings), str(root), str(node)]:
                # From the agent that started this process; the controller has written them.
                self._begin(replace(pickle.loads(settings), root=Path(root), node=node))
            case [
                "commit" | "seal" as how,
                str(trial_id),
                int(index),
                str(folder),
                int(iteration),
                float() | int() as time_total_s,
            ]:
                progress = TrialProgress(
                    trial_id=trial_id, iteration=iteration, time_total_s=time_total_s
                )
                self._uncommitted[folder] = progress
                self._lanes.start(
                    trial_id,
                    folder,
                    partial(self._commit, index, folder, progress, uploads=how == "commit"),
                    on_failure=lambda text: ["uncommitted", trial_id, index, text],
                )
            case ["discard", str(trial_id), list(folders)]:
                # Now and not in the lane: a publication that is ordered later relies on it.
                self._keeping().mark_for_removal(folders)
                what = f"remove {folders[0]}"
                discard = partial(self._discard, trial_id, what, folders)
                self._lanes.start(trial_id, what, discard, is_needed=False)
            case ["fetch", str(ticket), str(folder)]:
                self._lanes.start_asked(ticket, folder, partial(self._fetch, ticket, folder))
            case ["find", str(ticket), str(trial_id), str(folder), str(first)]:
                find = partial(self._find, ticket, trial_id, folder, first)
                self._lanes.start_asked(ticket, folder, find)
            case ["bring", str(ticket), str(folder), *without_artifacts]:
                bring = partial(self._bring, ticket, folder, artifacts=not without_artifacts)
                self._lanes.start_asked(ticket, folder, bring)
            case _ if self._keeping().start(message):
                pass
            case _:
                raise ValueError(f"not an order: {message!r:.200}")

    def _begin(self, settings: UploaderSettings) -> None:
        wait_at_most(settings.disk_deadline_s, lambda text: self._send(["warning", text]))
        if settings.node:
            self._role = NodeOrders(NodeKeeper(settings, self._told), self._lanes, self._send)
        else:
            self._role = OwnerOrders(Uploader(settings, self._told), self._lanes)
        self._lanes.start(OPEN, "open the storage", self._open)

    def _send(self, message: list[Any]) -> None:
        with suppress(ConnectionError):  # the controller is gone, and this process ends next
            self._wire.send(message)

    def _keeping(self) -> OwnerOrders | NodeOrders:
        assert self._role is not None
        return self._role

    @property
    def _keeper(self) -> Uploader | NodeKeeper:
        return self._keeping().keeper

    async def _open(self) -> None:
        role = self._keeping()
        try:
            answer = await role.open()
        except Exception as error:
            # Without the storage nothing can be uploaded: inform the controller at once.
            answer = [role.closed, reason_of(error)]
        self._send(answer)

    async def _commit(
        self, index: int, folder: str, progress: TrialProgress, *, uploads: bool
    ) -> None:
        trial_id = progress.trial_id
        await self._keeper.commit(trial_id, index, folder, progress=progress, uploads=uploads)
        self._uncommitted.pop(folder, None)

    async def _seal_left(self) -> None:
        """On a node, which keeps what is not in storage: seal the checkpoints whose turn had not
        come. The agent ends this process if it takes too long."""
        if isinstance(self._keeper, NodeKeeper):
            for folder, progress in self._uncommitted.items():
                with suppress(StorageError, OSError):
                    await self._keeper.seal(folder, progress)

    async def _discard(self, trial_id: str, what: str, folders: list[str]) -> None:
        for folder in folders:  # storage does not lack a superseded checkpoint
            self._lanes.failed.pop((trial_id, folder), None)
            self._uncommitted.pop(folder, None)
        try:
            await self._keeper.discard(folders)
        except Exception as error:
            # Reported now, but not listed at the end: storage does not lack it.
            self._send(["failed", what, reason_of(error)])
        self._keeping().discarded(trial_id, folders)

    async def _fetch(self, ticket: str, folder: str) -> list[Any]:
        try:
            await self._keeper.fetch(folder)
        except (NotStored, ManifestMismatch) as error:
            return ["fetched", ticket, str(error)]
        return ["fetched", ticket, ""]

    async def _find(self, ticket: str, trial_id: str, folder: str, first: str) -> list[Any]:
        return ["found", ticket, await self._keeper.find(trial_id, folder, first)]

    async def _bring(self, ticket: str, folder: str, *, artifacts: bool) -> list[Any]:
        await self._keeper.bring_artifacts(folder, all_files=artifacts)
        return ["fetched", ticket, ""]

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
        if self._role is not None and not lanes.under_way:
            with suppress(TimeoutError, StorageError):  # `left` lists the rest
                async with asyncio.timeout_at(max(tidy_by, loop.time() + 1)):
                    await self._keeper.tidy()
        if self._role is not None and (left := self._keeper.left):
            self._send(["left", left])
        if self._role is not None and (left_out := self._keeper.left_out):
            self._send(["warning", left_out])
        # Sent before anything is closed, because closing may take long.
        self._send(["closed", [*lanes.failed.values(), *late]])

    def _late(self) -> list[str]:
        """The orders that are not done, with the reason if there is one."""
        reasons = self._keeper.unfinished
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


class NodeOrders:
    """Starts the orders that only a node's keeper gets, in lanes. `send` sends the controller a
    message."""

    def __init__(
        self, keeper: NodeKeeper, lanes: Lanes, send: Callable[[list[Any]], None]
    ) -> None:
        self.keeper = keeper
        self._lanes = lanes
        self._send = send
        # By the folder of a trial, whether its artifacts are wanted, too.
        self._wanted: dict[str, bool] = {}

    # What a storage that cannot be opened is called.
    closed = "blind"

    async def open(self) -> list[Any]:
        """Look for the storage. Returns the answer."""
        return ["seen", *await self.keeper.see()]

    def start(self, message: list[Any]) -> bool:
        """Start an order; False if it is none of these."""
        match message:
            case ["have", str(ticket), str(folder), bool(committed)]:
                have = partial(self._have, ticket, folder, committed=committed)
                self._lanes.start_asked(ticket, folder, have)
            case ["copy", str(ticket), str(source), str(target)]:
                copy = partial(self._copy, ticket, source, target)
                self._lanes.start_asked(ticket, target, copy)
            case ["share", str(trial_id), int(index), str(folder), list(left_out)]:
                self._lanes.start(
                    trial_id,
                    folder,
                    partial(self.keeper.share, trial_id, index, folder, left_out),
                    on_failure=lambda text: ["uncommitted", trial_id, index, text],
                )
            case ["hand_over", str(ticket), str(folder)]:
                hand_over = partial(self._hand_over, ticket, folder)
                self._lanes.start_asked(ticket, folder, hand_over, lane=_MIRROR)
            case ["release", str(folder)]:
                what = f"release {folder}"
                release = partial(self.keeper.hand_over, folder, with_checkpoints=True)
                self._lanes.start(_MIRROR, what, release)
            case ["send_ended", str(folder)]:
                self._lanes.start(_MIRROR, _MIRROR, partial(self._send_ended, folder))
            case ["mirror", list(folders), bool(artifacts)]:
                is_first = not self._wanted
                for folder in folders:
                    self._wanted[folder] = self._wanted.get(folder, False) or artifacts
                if is_first and folders:  # otherwise a waiting task will send these, too
                    self._lanes.start(_MIRROR, _MIRROR, self._mirror)
            case _:
                return False
        return True

    def mark_for_removal(self, folders: list[str]) -> None:
        """The owner removes them from storage."""

    def discarded(self, trial_id: str, folders: list[str]) -> None:
        """The owner may remove them from storage: no commit of them is in progress here."""
        self._send(["discarded", trial_id, folders])

    async def _have(self, ticket: str, folder: str, *, committed: bool) -> list[Any]:
        return ["fetched", ticket, await self.keeper.have(folder, committed=committed)]

    async def _copy(self, ticket: str, source: str, target: str) -> list[Any]:
        staged = await self.keeper.copy(source, target)
        return ["copied", ticket, staged.files, staged.bytes]

    async def _hand_over(self, ticket: str, folder: str) -> list[Any]:
        await self.keeper.hand_over(folder)
        return ["fetched", ticket, ""]

    async def _send_ended(self, folder: str) -> None:
        await self.keeper.mirror([folder], artifacts=True)
        self._send(["sent_ended", folder])

    async def _mirror(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for artifacts in (False, True):
            folders = sorted(name for name, known in wanted.items() if known is artifacts)
            if folders:
                await self.keeper.mirror(folders, artifacts=artifacts)


class OwnerOrders:
    """Starts the orders that only the uploader gets, in lanes."""

    def __init__(self, keeper: Uploader, lanes: Lanes) -> None:
        self.keeper = keeper
        self._lanes = lanes
        self._asked: list[tuple[Position, int, tuple[str, ...]]] = []
        self._wanted: list[list[str] | None] = []

    # What a storage that cannot be opened is called.
    closed = "refused"

    async def open(self) -> list[Any]:
        """Open the storage. Returns the answer."""
        claim = await self.keeper.open()
        return ["opened", "" if claim is None else claim.key]

    def start(self, message: list[Any]) -> bool:
        """Start an order; False if it is none of these."""
        match message:
            case ["artifacts", list() | None as trials]:
                self._wanted.append(trials)
                if len(self._wanted) == 1:  # otherwise a waiting task will send these, too
                    self._lanes.start(_ARTIFACTS, _ARTIFACTS, self._send_artifacts)
            case ["ended", dict(words)]:
                self.keeper.tell_ended({str(name): str(word) for name, word in words.items()})
            case ["written", dict(words)]:
                self.keeper.tell_written({str(name): str(word) for name, word in words.items()})
            case ["publish", int(segment), int(offset), int(begins)]:
                end = Position(segment, offset)
                self._asked.append((end, begins, self.keeper.take_pending_removals()))
                if len(self._asked) == 1:  # otherwise a waiting task will publish this, too
                    self._lanes.start("publish", "publish the records", self._publish)
            case ["look", str(trial_id), int(index), str(folder), iteration, time_total_s]:
                progress = TrialProgress(
                    trial_id=trial_id, iteration=iteration, time_total_s=time_total_s
                )
                self._lanes.start(
                    trial_id,
                    folder,
                    partial(self.keeper.look, trial_id, index, folder, progress),
                    on_failure=lambda text: ["uncommitted", trial_id, index, text],
                )
            case ["complete", str(trial_id), int(index), str(folder), dict(files), *more]:
                complete = partial(self._complete, trial_id, index, folder, files, *more)
                self._lanes.start(
                    trial_id,
                    folder,
                    complete,
                    on_failure=lambda text: ["uncommitted", trial_id, index, text],
                )
            case ["witness", str(ticket), str(key), str(content)]:
                self._lanes.start_asked(
                    ticket, "a node's token", partial(self._witness, ticket, key, content)
                )
            case ["hand_over", str(ticket), str(folder)]:
                hand_over = partial(self._hand_over, ticket, folder)
                self._lanes.start_asked(ticket, folder, hand_over, lane=_ARTIFACTS)
            case ["check"]:
                self._lanes.start("check", "check the claim", self.keeper.check_claim)
            case _:
                return False
        return True

    def mark_for_removal(self, folders: list[str]) -> None:
        """Remove them from storage once a head that does not name them is published."""
        self.keeper.mark_for_removal(folders)

    def discarded(self, trial_id: str, folders: list[str]) -> None:
        """Storage lacks them only after a publication."""

    async def _complete(
        self,
        trial_id: str,
        index: int,
        folder: str,
        files: dict[str, list[Any]],
        empty_folders: list[str],
        iteration: int,
        time_total_s: float,
    ) -> None:
        progress = TrialProgress(trial_id=trial_id, iteration=iteration, time_total_s=time_total_s)
        whole = Manifest(
            files={
                name: FileFact(size=size, checksum=sum_) for name, (size, sum_) in files.items()
            },
            empty_folders=tuple(empty_folders),
            progress=progress,
        )
        await self.keeper.complete(trial_id, index, folder, whole)

    async def _witness(self, ticket: str, key: str, content: str) -> list[Any]:
        return ["fetched", ticket, await self.keeper.witness(key, content)]

    async def _hand_over(self, ticket: str, folder: str) -> list[Any]:
        await self.keeper.hand_over(folder)
        return ["fetched", ticket, ""]

    async def _send_artifacts(self) -> None:
        """Send the artifacts of all trials that were ordered so far."""
        wanted, self._wanted = self._wanted, []
        chosen = (
            None if None in wanted else sorted({name for names in wanted for name in names or ()})
        )
        await self.keeper.send_artifacts(chosen)

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
        try:
            await self.keeper.publish(end, begins)
        except BaseException:
            self.keeper.mark_for_removal(pending)
            raise
        # In a separate lane: no later publication waits for a removal that fails.
        self._lanes.start("remove", "remove", lambda: self._remove(pending), is_needed=False)

    async def _remove(self, pending: list[str]) -> None:
        await self.keeper.discard()  # retry the removals on this machine
        await self.keeper.remove(pending)
