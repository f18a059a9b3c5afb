"""How far a class trainable is: its counts, and the file in its checkpoints that keeps them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.trial.plain import is_count

PROGRESS_FILE: Final = ".trainable.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """The iterations, the seconds of training, and the steps and episodes of those iterations
    whose results say how many they had (None: none did)."""

    training_iteration: int = 0
    time_total_s: float = 0.0
    timesteps_total: int | None = None
    episodes_total: int | None = None

    def after(self, result: Mapping[str, Any], elapsed_s: float) -> StepCounts:
        """The counts after one more iteration, which had this result."""
        return StepCounts(
            training_iteration=self.training_iteration + 1,
            time_total_s=self.time_total_s + elapsed_s,
            timesteps_total=_sum(self.timesteps_total, result.get("timesteps_this_iter")),
            episodes_total=_sum(self.episodes_total, result.get("episodes_this_iter")),
        )

    def known(self) -> dict[str, Any]:
        """The counts for a result, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def write(self, directory: str) -> None:
        """Add them to a checkpoint."""
        Path(directory, PROGRESS_FILE).write_text(json.dumps(self.known()))

    def read(self, directory: str) -> StepCounts:
        """Those of a checkpoint; these, for one of a release that did not store them."""
        try:
            found = json.loads(Path(directory, PROGRESS_FILE).read_text())
        except (OSError, ValueError, RecursionError):
            return self
        match found:
            case {
                "training_iteration": int(known),
                "time_total_s": float() | int() as seconds,
            } if known >= 0 and math.isfinite(seconds):
                return StepCounts(
                    training_iteration=known,
                    time_total_s=float(seconds),
                    timesteps_total=_count(found.get("timesteps_total")),
                    episodes_total=_count(found.get("episodes_total")),
                )
        return self


def _sum(total: int | None, more: object) -> int | None:
    return total if _count(more) is None else (total or 0) + (_count(more) or 0)


def _count(value: object) -> int | None:
    return value if is_count(value) and value >= 0 else None
