"""The orders that only the keeper of a node gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.syncer.uploader.lanes import Lanes
from holdfast.syncer.uploader.node_keeper import NodeKeeper

_MIRROR = "send the trials' files"


class NodeOrders:
    """Starts the orders in lanes. `send` sends the controller a message."""

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
