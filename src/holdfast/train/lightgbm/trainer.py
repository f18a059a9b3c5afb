"""`LightGBMTrainer`, as users write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.experiment.context import get_checkpoint
from holdfast.experiment.data_config import TRAIN_DATASET_KEY, DataConfig
from holdfast.experiment.train_loop import BackendConfig
from holdfast.experiment.trainer import DataParallelTrainer
from holdfast.syncer.checkpoint import Checkpoint
from holdfast.train.boosting import Boosting, Loopless, RoundReports, without_frequency
from holdfast.train.lightgbm.config import LIGHTGBM, LightGBMConfig, get_network_params
from holdfast.trial.config import RunConfig
from holdfast.trial.scaling import ScalingConfig

# Of `lightgbm.train`, besides what the trainer says itself.
_TAKES = ("feval",)


class LightGBMTrainer(DataParallelTrainer):
    """A DataParallelTrainer whose ranks train one model together (`lightgbm_config`).

    Without `train_loop_per_worker` it calls `lightgbm.train` itself: `params`, `num_boost_round`
    (10) and `feval`, over the rows of `datasets["train"]`, whose label is `label_column`. The
    other datasets are evaluated, by each rank whole unless `dataset_config` splits them: LightGBM
    gathers no metrics, and all ranks are to stop in the same round. Several ranks train with
    `tree_learner="data_parallel"` unless `params` say otherwise. Each round is reported;
    `checkpoint_config` of the RunConfig says with `checkpoint_frequency` and `checkpoint_at_end`
    when the model is saved, and the training goes on with that model after a failure. To search,
    `param_space` has the parameters as `train_loop_config`.

    Raises InvalidConfig, and ImportError where LightGBM is not installed, or too old.
    """

    _backend_type: ClassVar[type[BackendConfig]] = LightGBMConfig

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        lightgbm_config: LightGBMConfig | None = None,
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
        LIGHTGBM.check()
        loopless = Loopless(
            trainer=type(self).__name__,
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
            train_arguments=train_arguments,
            takes=_TAKES,
        )
        if train_loop_per_worker is None:
            run_config = run_config or RunConfig()
            kept = run_config.checkpoint_config
            train_loop_per_worker = loopless.boosting(_Rounds, datasets, kept)
            train_loop_config = {**(params or {}), **(train_loop_config or {})}
            run_config = without_frequency(run_config)
            dataset_config = dataset_config or DataConfig([TRAIN_DATASET_KEY])
        else:
            loopless.refuse()
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=lightgbm_config,
            scaling_config=scaling_config,
            dataset_config=dataset_config,
            run_config=run_config,
            datasets=datasets,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            keep_all_metrics=keep_all_metrics,
            refuse_clashes=refuse_clashes,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Any:
        """The Booster in a checkpoint of a training without a loop of its own."""
        from holdfast.train.lightgbm.callback import TrainReportCallback

        return TrainReportCallback.get_model(checkpoint)


class _Rounds(Boosting):
    """The rounds that are still to come."""

    def __call__(self, config: dict[str, Any]) -> None:
        import lightgbm

        from holdfast.train.lightgbm.callback import CHECKPOINT_NAME, HeldReports
        from holdfast.train.lightgbm.callback import TrainReportCallback as callback

        begun = get_checkpoint()
        model = None if begun is None else callback.get_model(begun)
        done = 0 if model is None else model.current_iteration()
        if done >= self.num_boost_round:
            return
        params = _parallel(config)
        tables = self.tables()
        first = tables.pop(TRAIN_DATASET_KEY)
        data = lightgbm.Dataset(first.features, first.label, params=params)
        valid = {
            name: lightgbm.Dataset(table.features, table.label, reference=data)
            for name, table in tables.items()
        }
        held = HeldReports(
            RoundReports(
                metrics=None,
                filename=CHECKPOINT_NAME,
                frequency=self.frequency,
                checkpoint_at_end=self.checkpoint_at_end,
                results_postprocessing_fn=None,
            )
        )
        trained = lightgbm.train(
            params,
            data,
            num_boost_round=self.num_boost_round - done,
            valid_sets=[data, *valid.values()],
            valid_names=[TRAIN_DATASET_KEY, *valid],
            init_model=model,
            callbacks=held.callbacks(),
            keep_training_booster=True,  # which has all rounds, after an early stop, too
            **self.train_arguments,
        )
        held.end(trained)


def _parallel(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with those that several ranks need."""
    network = get_network_params()
    if not network:
        return dict(config)
    return {"tree_learner": "data_parallel", "pre_partition": True, **config, **network}
