"""Checks that the first report has the metrics that settings name: a missing one is usually a
typo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.kept import Kept, NotKept
from holdfast.trial.absent import absent_from_first_report, has_metric, unscored
from holdfast.trial.stopper import lookup


class Expected:
    """The metrics that no report has had yet; `bounds` are the names in `RunConfig(stop=...)`."""

    metric_seen: bool
    bounds: Annotated[tuple[str, ...], Kept(name="bounds_unseen", rare=True)]
    score_checked: bool
    _metric: NotKept[str | None]
    _strict_kind: NotKept[bool]
    _score: NotKept[str | None]
    _stop: NotKept[Mapping[str, float]]

    def __init__(
        self,
        spec: ExperimentSpec,
        *,
        metric_seen: bool = False,
        bounds: tuple[str, ...] | None = None,
        score_checked: bool = False,
    ) -> None:
        self._metric = spec.metric if spec.strict_metric else None
        self._strict_kind = spec.strict_kind
        self._score = spec.checkpoint.checkpoint_score_attribute
        self.metric_seen = metric_seen or self._metric is None
        self.score_checked = score_checked or self._score is None
        if bounds is None:
            bounds = (*spec.stop, *spec.stop_metrics) if spec.strict_stop else ()
        self.bounds = bounds
        self._stop = spec.stop

    @property
    def is_met(self) -> bool:
        return self.metric_seen and not self.bounds

    @property
    def unseen(self) -> dict[str, str]:
        """The settings whose metric no report has had so far, each with that metric."""
        bounds = {self._setting(name): name for name in self.bounds}
        if self.metric_seen or self._metric is None:
            return bounds
        return {f"TuneConfig(metric={self._metric!r})": self._metric, **bounds}

    @property
    def lacks_only_stoppers(self) -> bool:
        return self.metric_seen and not any(name in self._stop for name in self.bounds)

    def _setting(self, name: str) -> str:
        if name in self._stop:
            return f"RunConfig(stop={{{name!r}: ...}})"
        return f"RunConfig(stop=...Stopper(metric={name!r}))"

    def changed(self, old: ExperimentSpec, new: ExperimentSpec, *, has_rows: bool) -> Expected:
        """The expectations after the settings have changed. New names were looked up in any
        rows."""
        known = (*old.stop, *old.stop_metrics)
        bounds = [name for name in (*new.stop, *new.stop_metrics) if name in self.bounds]
        if new.strict_stop and not has_rows:
            bounds += [name for name in (*new.stop, *new.stop_metrics) if name not in known]
        return Expected(
            new,
            metric_seen=self.metric_seen,
            bounds=tuple(bounds),
            score_checked=self.score_checked,
        )

    def forgive(self) -> None:
        """Stop treating missing metrics as mistakes."""
        self.metric_seen, self.bounds = True, ()

    def fault_in(self, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
        """The error for a report that lacks a metric that no earlier one had; "" if there is none.

        `row` has the automatic metrics in addition to `metrics`, which are the user's.
        """
        if self._metric is not None and not self.metric_seen:
            value = lookup(row, self._metric)
            is_number = isinstance(value, (int, float)) or not self._strict_kind
            self.metric_seen = value is not None and is_number
        self.bounds = tuple(name for name in self.bounds if not has_metric(row, name))
        return "" if self.is_met else absent_from_first_report(self.unseen, row, metrics)

    def doubt_of_score(self, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
        """A warning about the first report with a checkpoint; "" if there is none."""
        if self.score_checked or self._score is None:
            return ""
        self.score_checked = True
        return unscored(self._score, row, metrics)
