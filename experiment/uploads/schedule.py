"""Decides whose artifacts are sent with each publication.

Publications come every period, and soon after a checkpoint was committed.
"""

from __future__ import annotations

from holdfast.trial.config import SyncConfig

# A timer may fire a moment early.
_NEARLY_S = 0.05


def rounds_of(sync: SyncConfig) -> ArtifactRounds | None:
    """None if no artifacts are sent."""
    if not sync.sync_artifacts:
        return None
    return ArtifactRounds(
        period_s=sync.sync_period, with_checkpoints=sync.sync_artifacts_on_checkpoint
    )


class ArtifactRounds:
    """Sends the artifacts of all trials once in `period_s`.

    With `with_checkpoints`, a publication in between sends those of trials that have committed a
    checkpoint. Times are in seconds from any fixed start.
    """

    def __init__(self, *, period_s: float, with_checkpoints: bool) -> None:
        self._period_s = period_s
        self._with_checkpoints = with_checkpoints
        self._committed: set[str] = set()
        self._whole_at: float | None = None

    def committed(self, folder: str) -> None:
        """Note that the trial in this folder has a new checkpoint in storage."""
        if self._with_checkpoints:
            self._committed.add(folder)

    def due_in_s(self, now: float) -> float:
        """Seconds until it is the turn of all trials."""
        begun = now if self._whole_at is None else self._whole_at
        return max(0.0, begun + self._period_s - now)

    def take(self, now: float, *, whole: bool) -> list[str] | None:
        """The folders of the trials whose turn it is now; None for all."""
        committed, self._committed = sorted(self._committed), set()
        if whole or self._whole_at is None or self.due_in_s(now) < _NEARLY_S:
            self._whole_at = now
            return None
        return committed
