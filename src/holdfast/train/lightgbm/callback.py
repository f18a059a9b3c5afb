"""The callback that reports each round of a LightGBM training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from lightgbm import Booster
from lightgbm.callback import CallbackEnv

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.reporting import Metrics, ModelCheckpoint, RoundReports, saved

CHECKPOINT_NAME = "model.txt"


class TrainReportCallback:
    """Reports the evaluations of `lightgbm.train(..., valid_sets=...)`, each round as one
    iteration.

    `metrics` chooses what to report: one name, a list of names, a dict that maps the names to
    report to LightGBM's, or None for all. LightGBM's names have the form
    `<name of the data>-<metric>`, followed by `-mean` and `-stdv` in `lightgbm.cv`. Rank 0 saves
    the model as `filename` after every `frequency`-th round (0: never) and, with
    `checkpoint_at_end`, after the last one. Rounds are counted over all attempts.
    `results_postprocessing_fn` may change the metrics before they are reported.

    LightGBM does not say that an early stop makes a round the last one. With early stopping, only
    `frequency` saves the model.

    Raises InvalidConfig.
    """

    CHECKPOINT_NAME = CHECKPOINT_NAME
    # LightGBM reads these: call it after each round, before a callback that ends the training.
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
            metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """The model in a checkpoint. Raises FileNotFoundError if there is none."""
        with saved(checkpoint, filename) as path:
            return Booster(model_file=path)

    def __call__(self, env: CallbackEnv) -> None:
        """Called by LightGBM after each round."""
        rounds = env.iteration + 1
        self._reports.hold(evaluated(env))
        self._reports.report(rounds, env.model.save_model, is_last=rounds == env.end_iteration)


def delayed_reports(reports: RoundReports) -> list[Callable[[CallbackEnv], None]]:
    """Callbacks that report each round when the next one begins.

    Only the caller of `lightgbm.train` knows when it has ended, also after an early stop: it then
    calls `reports.report(..., is_last=True)`.
    """

    def after(env: CallbackEnv) -> None:
        reports.hold(evaluated(env))

    def before(env: CallbackEnv) -> None:
        reports.report(env.iteration, env.model.save_model, is_last=False)

    after.order = TrainReportCallback.order  # type: ignore[attr-defined]
    before.before_iteration = True  # type: ignore[attr-defined]
    return [after, before]


def evaluated(env: CallbackEnv) -> dict[str, Any]:
    """The values of one round, as `valid_0-l2`."""
    found: dict[str, Any] = {}
    for data, metric, value, _, *deviation in env.evaluation_result_list or ():
        name = f"{data}-{metric}"
        if deviation:
            found[f"{name}-mean"], found[f"{name}-stdv"] = value, deviation[0]
        else:
            found[name] = value
    return found


class LightGBMCheckpoint(ModelCheckpoint):
    """A checkpoint with a model in `model.txt`, as the report callback and LightGBMTrainer save
    it."""

    MODEL_FILENAME = CHECKPOINT_NAME

    @classmethod
    def from_model(cls, booster: Booster) -> Self:
        """A checkpoint of the model, in a temporary directory that is removed with it."""
        return cls.saved(cls.MODEL_FILENAME, booster.save_model)

    def get_model(self) -> Booster:
        """The model. Raises FileNotFoundError, which lists the files that there are."""
        return TrainReportCallback.get_model(self, self.MODEL_FILENAME)
