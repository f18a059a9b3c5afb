"""What `verbose` 2 and 3 add to whatever view there is: a line for what happens to each trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.callback_thread import Tell
from holdfast.experiment.callbacks import Callback
from holdfast.experiment.reporters import is_telling
from holdfast.experiment.trial_view import TrialView
from holdfast.experiment.wording import duration, short


class ResultLines(Callback):
    """For `verbose` 2 and 3: a line for each trial that starts or ends, from 3 on each result."""

    def __init__(self, verbose: int, tell: Tell) -> None:
        self._verbose = verbose
        self._tell = tell

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        params = " ".join(f"{k}={short(v)}" for k, v in trial.evaluated_params.items())
        self._tell(f"{trial} started {params}".rstrip(), "info")

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        if self._verbose >= 3:
            self._tell(f"{trial} {_result_text(trial, result)}", "info")

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._tell(f"{trial} finished at {_result_text(trial, trial.last_result)}", "info")


def _result_text(trial: TrialView, row: Mapping[str, Any]) -> str:
    values = " ".join(f"{k}={short(v)}" for k, v in row.items() if is_telling(k, v))
    elapsed = duration(row.get("time_total_s", 0.0))
    return f"iteration {trial.iteration} after {elapsed} {values}".rstrip()
