"""The trials that have run on a node, and which of their files are not in storage yet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto

from holdfast.dataclass import dataclass
from holdfast.runtime.wire import Message


class _Files(Enum):
    """What is known of a trial's files, but for its checkpoints."""

    CHANGING = auto()
    ENDED = auto()  # nothing changes them any more, and the keeper was ordered to send them
    IN_STORAGE = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class _Here:
    """A trial that has run on the node. `is_released`: its folder is removed once it is sent."""

    trial_id: str
    files: _Files = _Files.CHANGING
    is_released: bool = False


class NodeTrials:
    """Orders the node's keeper to send the trials' files, by their folders.

    It sends them once more when a trial has ended, so that a node that is lost later takes nothing
    with it.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        """`send` sends the keeper an order."""
        self._send = send
        self._here: dict[str, _Here] = {}

    def note(self, folder: str, trial_id: str) -> None:
        """The trial in this folder runs here."""
        self._here[folder] = _Here(trial_id=trial_id)

    def handed_over(self, folder: str) -> None:
        """The trial goes to another node, and its files are in storage."""
        if folder in self._here:
            self._here[folder].files = _Files.IN_STORAGE

    def mirror(self, folders: Collection[str] | None, *, artifacts: bool) -> None:
        """Send the changed files of the trials in these folders; None for all."""
        wanted = [
            name
            for name, one in self._here.items()
            if not one.is_released and (folders is None or name in folders)
        ]
        if wanted:
            self._send(["mirror", wanted, artifacts])

    def ended(self, folder: str) -> None:
        """The trial in this folder has ended: send its files, with an answer."""
        one = self._here.get(folder)
        if one is not None and one.files is _Files.CHANGING:
            one.files = _Files.ENDED
            self._send(["send_ended", folder])

    def repeat(self) -> None:
        """Repeat the orders that have no answer, to a keeper that has replaced one that died."""
        for folder, one in self._here.items():
            if one.files is _Files.ENDED:
                self._send(["send_ended", folder])

    def sent(self, folder: str) -> None:
        """The files of a trial that has ended are in storage."""
        one = self._here.get(folder)
        if one is not None and one.files is _Files.ENDED:
            one.files = _Files.IN_STORAGE
            if one.is_released:
                del self._here[folder]

    def release(self, is_over: Callable[[str, str], bool]) -> list[str]:
        """Let the node remove the trials that are over, by folder and id, once their files are in
        storage. Returns their folders."""
        released = [
            folder
            for folder, one in self._here.items()
            if not one.is_released and is_over(folder, one.trial_id)
        ]
        for folder in released:
            self.ended(folder)
            self._send(["release", folder])
            if self._here[folder].files is _Files.IN_STORAGE:
                del self._here[folder]
            else:
                self._here[folder].is_released = True
        return released

    def unsent(self, *, all_have_ended: bool) -> list[str]:
        """The ids of trials that have ended and of which storage may lack files."""
        return [
            one.trial_id
            for one in self._here.values()
            if one.files is _Files.ENDED or (all_have_ended and one.files is _Files.CHANGING)
        ]
