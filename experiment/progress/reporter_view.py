"""Drives a user's own ProgressReporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from holdfast.experiment.callbacks.messages import Level
from holdfast.experiment.callbacks.trial_view import TrialView, Views
from holdfast.experiment.progress.node_wording import node_lines
from holdfast.experiment.progress.reporters import ProgressReporter
from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.views import ProgressView
from holdfast.experiment.progress.wording import closing_lines, storage_text
from holdfast.trial.trial import Trial

_EVERY_S = 1.0


class ReporterView:
    """Asks a user's ProgressReporter once a second whether it wants to report."""

    def __init__(
        self,
        reporter: ProgressReporter,
        views: Views,
        trials: Callable[[], Iterable[Trial]],
        lines: ProgressView,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._views = views
        self._trials = trials
        self._lines = lines
        self._clock = clock
        self._next_at = 0.0

    def start(self) -> None:
        """The caller, which knows the run, calls `ProgressReporter.setup`."""

    def update(self, summary: Summary) -> None:
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + _EVERY_S
        trials = self._shown()
        if self._reporter.should_report(trials, done=False):
            self._reporter.report(trials, False, *self._info(summary))

    def log(self, prefix: str, text: str) -> None:
        self._lines.log(prefix, text)

    def skipped(self, prefix: str, count: int) -> None:
        self._lines.skipped(prefix, count)

    def message(self, text: str, level: Level) -> None:
        self._lines.message(text, level)

    def finish(self, summary: Summary) -> None:
        self._reporter.report(self._shown(), True, *self._info(summary))
        self._lines.message(closing_lines(summary)[-1], "info")

    def abandon(self) -> None:
        self._lines.abandon()

    def _shown(self) -> list[TrialView]:
        for trial in self._trials():
            self._views.show(trial)
        return self._views.trials

    def _info(self, summary: Summary) -> list[str]:
        lines = (f"Results: {summary.path}", storage_text(summary), *node_lines(summary))
        return list(filter(None, lines))
