"""Reports each round of a LightGBM training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightgbm import Booster
from lightgbm.callback import CallbackEnv

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.boosting import RoundReports
from holdfast.train.reporting import Metrics, saved

CHECKPOINT_NAME = "model.txt"


class TrainReportCallback:
    """Reports what `lightgbm.train(..., valid_sets=...)` has evaluated, each round as one
    iteration.

    `metrics`: a name, a list of names, a dict of names by what to report them as, or None for all;
    a name is `<name of the data>-<metric>`, with `-mean` and `-stdv` after it in `lightgbm.cv`. Of
    every `frequency`-th round, 0 for none, and of the last one (`checkpoint_at_end`) the model is
    saved by rank 0 as `filename`; rounds are counted over all attempts.
    `results_postprocessing_fn` may change what is reported.

    LightGBM does not tell that an early stop makes a round the last one: with early stopping the
    model is saved by `frequency`.

    Raises InvalidConfig.
    """

    CHECKPOINT_NAME = CHECKPOINT_NAME
    # What LightGBM looks for: called after a round, before a callback that ends the training.
    order = 25
    before_iteration = False

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self._reports = RoundReports(
            metrics=metrics,
            filename=filename,
            frequency=frequency,
            checkpoint_at_end=checkpoint_at_end,
            results_postprocessing_fn=results_postprocessing_fn,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """The model in a checkpoint. Raises FileNotFoundError where there is none."""
        with saved(checkpoint, filename) as path:
            return Booster(model_file=path)

    def __call__(self, env: CallbackEnv) -> None:
        """Called by LightGBM after each round."""
        rounds = env.iteration + 1
        self._reports.report(
            self._reports.row(evaluated(env.evaluation_result_list or ())),
            rounds,
            env.model.save_model,
            is_last=rounds == env.end_iteration,
        )


class HeldReports:
    """The same for who calls `lightgbm.train` and can say that it has ended: a round is reported
    as the next one begins, or at `end`, so that the last one is known after an early stop, too."""

    def __init__(self, reports: RoundReports) -> None:
        self._reports = reports
        self._row: dict[str, Any] | None = None

    def callbacks(self) -> list[Callable[[CallbackEnv], None]]:
        def after(env: CallbackEnv) -> None:
            self._row = self._reports.row(evaluated(env.evaluation_result_list or ()))

        def before(env: CallbackEnv) -> None:
            self._report(env.model, env.iteration, is_last=False)

        after.order = TrainReportCallback.order  # type: ignore[attr-defined]
        before.before_iteration = True  # type: ignore[attr-defined]
        return [after, before]

    def end(self, model: Booster) -> None:
        self._report(model, model.current_iteration(), is_last=True)

    def _report(self, model: Booster, rounds: int, *, is_last: bool) -> None:
        row, self._row = self._row, None
        if row is not None:
            self._reports.report(row, rounds, model.save_model, is_last=is_last)


def evaluated(results: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The values of one round by `valid_0-l2`."""
    found: dict[str, Any] = {}
    for data, metric, value, _, *deviation in results:
        name = f"{data}-{metric}"
        if deviation:
            found[f"{name}-mean"], found[f"{name}-stdv"] = value, deviation[0]
        else:
            found[name] = value
    return found
