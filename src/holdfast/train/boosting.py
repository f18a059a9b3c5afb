"""What the callbacks of XGBoost and LightGBM share: they report each boosting round once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import report
from holdfast.plain_numbers import made_of_numbers
from holdfast.train.reporting import Metrics, Save, check_metrics, chosen, report_saved
from holdfast.trial.errors import InvalidConfig, InvalidMetrics


class WithoutCheckpoints:
    """Mixin: a callback that reports as its base does, and never saves the model."""

    def __init__(
        self,
        metrics: Metrics = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            metrics=metrics,
            checkpoint_at_end=False,
            results_postprocessing_fn=results_postprocessing_fn,
        )


@made_of_numbers
@dataclass(slots=True)
class RoundReports:
    """Which metrics of a round are reported, and after which rounds the model is saved.

    A callback learns only after a round whether that was the last one. So it holds the row of a
    round, and reports it when the next round begins or the training ends.

    Raises InvalidConfig.
    """

    metrics: Metrics
    filename: str
    frequency: int
    checkpoint_at_end: bool
    results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    _held: Mapping[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if not isinstance(self.frequency, int) or self.frequency < 0:
            raise InvalidConfig(
                f"frequency={self.frequency!r} must be a number of rounds, 0 for never"
            )

    def hold(self, found: Mapping[str, Any]) -> None:
        """Keep the metrics of a round for `report`. Raises InvalidMetrics."""
        self._held = self.row(found)

    def report(self, rounds: int, save: Save, *, is_last: bool) -> None:
        """Report the row that is held, if any, as one iteration. The model has `rounds` rounds."""
        row, self._held = self._held, None
        if row is None:
            return
        if self.saves(rounds, is_last=is_last):
            report_saved(row, self.filename, save)
        else:
            report(row)

    def row(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics to report of a round. Raises InvalidMetrics."""
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
        """Whether to save the model after this many rounds."""
        if is_last and self.checkpoint_at_end:
            return True
        return bool(self.frequency) and rounds % self.frequency == 0
