"""When whose artifacts are sent: with the publications, which come each period and soon after a
checkpoint was committed."""

from __future__ import annotations

# A timer may fire a moment early.
_NEARLY_S = 0.05


class ArtifactRounds:
    """All trials have their turn once in `period_s`; between, those (`with_checkpoints`) that have
    committed a checkpoint. Times are seconds, from anywhere but ever rising."""

    def __init__(self, *, period_s: float, with_checkpoints: bool) -> None:
        self._period_s = period_s
        self._with_checkpoints = with_checkpoints
        self._committed: set[str] = set()
        self._whole_at: float | None = None

    def committed(self, folder: str) -> None:
        """The trial in this folder has a checkpoint in storage now."""
        if self._with_checkpoints:
            self._committed.add(folder)

    def due_in_s(self, now: float) -> float:
        """How long until all trials have their turn."""
        begun = now if self._whole_at is None else self._whole_at
        return max(0.0, begun + self._period_s - now)

    def take(self, now: float, *, whole: bool) -> list[str] | None:
        """The folders of the trials whose turn it is now, None for all."""
        committed, self._committed = sorted(self._committed), set()
        if whole or self._whole_at is None or self.due_in_s(now) < _NEARLY_S:
            self._whole_at = now
            return None
        return committed
