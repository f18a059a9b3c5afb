"""What callbacks of XGBoost and LightGBM report: rounds, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import report
from holdfast.train.reporting import Metrics, Save, check_metrics, chosen, report_saved
from holdfast.trial.errors import InvalidConfig, InvalidMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReports:
    """Which of a round's metrics are reported, and after which rounds the model is saved.

    Raises InvalidConfig.
    """

    filename: str
    frequency: int
    checkpoint_at_end: bool
    metrics: Metrics = None
    results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if not isinstance(self.frequency, int) or self.frequency < 0:
            raise InvalidConfig(
                f"frequency={self.frequency!r} must be a number of rounds, 0 for never"
            )

    def row(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What is reported of a round. Raises InvalidMetrics."""
        row = chosen(found, self.metrics)
        if self.results_postprocessing_fn is None:
            return row
        made = self.results_postprocessing_fn(row)
        if not isinstance(made, Mapping):
            raise InvalidMetrics(
                f"results_postprocessing_fn must return a dict of metrics, not {made!r:.100}"
            )
        return dict(made)

    def saves(self, rounds: int, *, is_last: bool) -> bool:
        """Whether the model is saved when it has so many rounds."""
        if is_last and self.checkpoint_at_end:
            return True
        return bool(self.frequency) and rounds % self.frequency == 0

    def report(self, row: Mapping[str, Any], rounds: int, save: Save, *, is_last: bool) -> None:
        """One iteration of the trial."""
        if self.saves(rounds, is_last=is_last):
            report_saved(row, self.filename, save)
        else:
            report(row)
