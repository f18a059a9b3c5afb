"""What the uploads need of their owner, the controller."""

from __future__ import annotations

from typing import Protocol

from holdfast.experiment.callbacks.thread import Level
from holdfast.scheduler.events import Event


class UploadsHost(Protocol):
    """The owner of the uploads."""

    def post(self, event: Event) -> None: ...

    def warn(self, text: str, level: Level = "warning") -> None: ...

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        """Called for a checkpoint that is gone before it was committed."""

    def lose_ownership(self, text: str) -> None:
        """Called if another incarnation owns the storage."""
