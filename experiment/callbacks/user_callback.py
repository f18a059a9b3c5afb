"""`UserCallback`: Train V2's callback, with one hook for reports and one for failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import TrialError
from holdfast.trial.scaling import ScalingConfig
from holdfast.trial.values import LOOP_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRunContext:
    """The training that a hook is about: its settings, its trial, and the folder of its experiment
    in storage.

    `run_id` is the same after a restore. `scaling_config` is None for a trial of a Tuner that
    runs no trainer.
    """

    run_id: str
    run_config: RunConfig | None
    scaling_config: ScalingConfig | None
    train_loop_config: dict[str, Any]
    trial_id: str
    trial_name: str
    experiment_name: str
    experiment_path: str


class UserCallback(Callback):
    """Hooks into a training: subclass it, override the hooks you need, pass it to
    `RunConfig(callbacks=)`. It is a Callback, whose other hooks it has, too, and which says in
    which thread they run.
    """

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Called with each report of the training, once it is in the journal.

        `metrics` has one dict: those of rank 0. With `keep_all_metrics=True` of the trainer it has
        one for each rank.
        """

    def after_exception(
        self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]
    ) -> None:
        """Called when workers have failed, whether or not the training is retried.

        `worker_exceptions` has a TrialError by the rank that is the cause; its text has the errors
        of other ranks, too.
        """

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        checkpoint = trial.checkpoint if result.get("checkpoint_dir_name") else None
        self.after_report(_context(trial), _by_rank(trial.reported), checkpoint)

    def on_trial_recover(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._failed(trial)

    def on_trial_error(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._failed(trial)

    def _failed(self, trial: TrialView) -> None:
        failure = trial.failure
        if failure is not None:
            error = TrialError(trial.trial_id, failure, trial.local_path)
            self.after_exception(_context(trial), {failure.rank or 0: error})


def _context(trial: TrialView) -> TrainRunContext:
    around = trial.surroundings
    config = trial.config
    return TrainRunContext(
        run_id=around.run_id,
        run_config=around.run_config,
        scaling_config=around.scaling_of(config) if around.scaling_of else None,
        train_loop_config=config.get(LOOP_CONFIG, config),
        trial_id=trial.trial_id,
        trial_name=str(trial),
        experiment_name=trial.experiment_dir_name,
        experiment_path=around.experiment_path,
    )


def _by_rank(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    ranks = row.get("ranks")
    if isinstance(ranks, Mapping):
        return [dict(ranks[rank]) for rank in sorted(ranks, key=int)]
    return [dict(row)]
