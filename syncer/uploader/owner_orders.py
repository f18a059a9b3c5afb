"""The orders that only the uploader gets, the keeper of the controller's tree."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from holdfast.syncer.checkpoint.manifest import FileFact, Manifest, TrialProgress
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.uploader.lanes import Lanes
from holdfast.syncer.uploader.uploader import Uploader

_ARTIFACTS = "send the artifacts"
_AHEAD_S = 20.0


class OwnerOrders:
    """Starts the orders in lanes."""

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
