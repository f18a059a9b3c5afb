"""`XGBoostTrainer`, as users write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.experiment.worker.train_loop import TRAIN_DATASET_KEY, BackendConfig, DataConfig
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.boosting_trainer import Boosting, BoostingTrainer
from holdfast.train.xgboost.config import XGBoostConfig
from holdfast.trial.config import RunConfig
from holdfast.trial.scaling import ScalingConfig


class _Rounds(Boosting):
    takes = (
        "obj",
        "maximize",
        "early_stopping_rounds",
        "verbose_eval",
        "custom_metric",
        "callbacks",
    )

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> Any:
        from holdfast.train.xgboost.callback import TrainReportCallback

        return TrainReportCallback.get_model(checkpoint)

    @staticmethod
    def rounds_of(model: Any) -> int:
        return model.num_boosted_rounds()

    def train(self, config: dict[str, Any], model: Any, rounds: int) -> None:
        import xgboost

        from holdfast.train.xgboost.callback import TrainReportCallback

        matrices = {
            name: xgboost.DMatrix(table.features, table.label)
            for name, table in self.tables().items()
        }
        arguments = {"verbose_eval": False, **self.train_arguments}
        callbacks = list(arguments.pop("callbacks", ()))
        if not any(isinstance(one, TrainReportCallback) for one in callbacks):
            report = TrainReportCallback(
                frequency=self.frequency, checkpoint_at_end=self.checkpoint_at_end
            )
            callbacks.append(report)
        xgboost.train(
            config,
            matrices[TRAIN_DATASET_KEY],
            num_boost_round=rounds,
            evals=[(matrix, name) for name, matrix in matrices.items()],
            xgb_model=model,
            callbacks=callbacks,
            **arguments,
        )


class XGBoostTrainer(BoostingTrainer):
    """A DataParallelTrainer whose ranks train one model together (`xgboost_config`).

    Without `train_loop_per_worker` it calls `xgboost.train` itself, with `params`,
    `num_boost_round` (10) and any further arguments of that function. It trains on the rows of
    `datasets["train"]`, whose label is `label_column`, and evaluates the other datasets. Each
    round is reported. In the RunConfig's `checkpoint_config`, `checkpoint_frequency` and
    `checkpoint_at_end` say when the model is saved. After a failure the training resumes with
    that model, and repeats no round that it has. To search, put the parameters into `param_space`
    as `params`.

    For the other parameters see DataParallelTrainer.

    Raises InvalidConfig, and ImportError if XGBoost is not installed, or too old.
    """

    _backend_type: ClassVar[type[BackendConfig]] = XGBoostConfig
    _boosting: ClassVar[type[Boosting]] = _Rounds

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        xgboost_config: XGBoostConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        label_column: str | None = None,
        params: Mapping[str, Any] | None = None,
        num_boost_round: int | None = None,
        keep_all_metrics: bool = False,
        refuse_clashes: bool = False,
        **train_arguments: Any,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=xgboost_config,
            scaling_config=scaling_config,
            dataset_config=dataset_config,
            run_config=run_config,
            datasets=datasets,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            keep_all_metrics=keep_all_metrics,
            refuse_clashes=refuse_clashes,
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
            train_arguments=train_arguments,
        )
