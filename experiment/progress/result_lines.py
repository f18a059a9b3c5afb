"""The lines that `verbose` 2 and 3 add to any view: what happens to each trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.messages import Tell
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.experiment.progress.reporters import is_telling
from holdfast.experiment.progress.stop_reasons import stop_text
from holdfast.experiment.progress.wording import duration, format_value, values_text
from holdfast.experiment.records.rows import CONFIG
from holdfast.trial.values import flatten

_BRIEF, _DETAILED = 2, 3
_EVERY_S = 1.0
# The first line of a result has these, or they say nothing about it.
_SAID = frozenset({"trial_id", "training_iteration", "time_total_s", "done", "should_checkpoint"})


class ResultLines(Callback):
    """For `verbose` 2 and 3: a line for each trial that starts or ends, and for its results.

    2: the numbers of the newest result, at most once a second and trial. 3: all values of
    every result, one per line.
    """

    def __init__(
        self,
        verbose: int,
        tell: Tell,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verbose = verbose
        self._tell = tell
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._tell(f"{trial} started {values_text(trial.evaluated_params)}".rstrip(), "info")

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        step = result.get("training_iteration", trial.iteration)
        if self._verbose >= _DETAILED:
            lines = [f"{trial} {_headline(result, step)}", *_details(result)]
            self._tell("\n".join(lines), "info")
        elif self._verbose >= _BRIEF and self._is_due(trial.trial_id):
            self._tell(f"{trial} {_brief(result, step)}", "info")

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._told_at.pop(trial.trial_id, None)
        ended = stop_text(trial.stop)
        self._tell(f"{trial} {ended} at {_brief(trial.last_result, trial.iteration)}", "info")

    def on_trial_error(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """The views report errors."""
        self._told_at.pop(trial.trial_id, None)

    def _is_due(self, trial_id: str) -> bool:
        now = self._clock()
        if now - self._told_at.get(trial_id, -_EVERY_S) < _EVERY_S:
            return False
        self._told_at[trial_id] = now
        return True


def _headline(row: Mapping[str, Any], iteration: int) -> str:
    return f"iteration {iteration} after {duration(row.get('time_total_s', 0.0))}"


def _brief(row: Mapping[str, Any], iteration: int) -> str:
    numbers = {name: value for name, value in row.items() if is_telling(name, value)}
    return f"{_headline(row, iteration)} {values_text(numbers)}".rstrip()


def _details(row: Mapping[str, Any]) -> Iterator[str]:
    """All values of a row except the configuration, sorted by name."""
    values = flatten({name: value for name, value in row.items() if name != CONFIG})
    for name in sorted(values):
        if name not in _SAID:
            yield f"  {name}: {format_value(values[name], 100)}"
