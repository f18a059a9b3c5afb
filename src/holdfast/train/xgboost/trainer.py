"""`XGBoostTrainer`, and the network of the ranks of one trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from holdfast.compat.advice import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.train_loop import (
    TRAIN_DATASET_KEY,
    BackendConfig,
    DataConfig,
    Rank,
)
from holdfast.lazy import XGBOOST
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.boosting import Boosting, BoostingTrainer
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.scaling import ScalingConfig


@dataclass(unsafe_hash=True)
class XGBoostConfig(Assignable, BackendConfig):
    """The ranks train one model together. An operation of the group may take `timeout_s`.

    Raises InvalidConfig, and ImportError if XGBoost is not installed, or too old.
    """

    xgboost_communicator: str = "rabit"
    timeout_s: int = 1800
    modules = ("xgboost", "xgboost.tracker")

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise InvalidConfig(
                f"XGBoostConfig(xgboost_communicator={self.xgboost_communicator!r}): there is "
                f"'rabit'"
            )
        XGBOOST.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises what XGBoost raises."""
        if rank.world_size == 1:
            yield
            return
        from xgboost.collective import CommunicatorContext

        tracker, arguments = self._meet(rank)
        # XGBoost numbers its ranks in the order of these names, so that they match the trial's.
        arguments |= {"dmlc_task_id": f"{rank.rank:08d}", "dmlc_timeout": self.timeout_s}
        group = CommunicatorContext(**arguments)
        group.__enter__()
        try:
            yield
        except BaseException:
            # The other ranks may be gone, and this process ends anyway. A tracker that Python
            # frees meanwhile would print twenty lines about its socket after the cause.
            if tracker is not None:
                vars(tracker).pop("handle", None)
            raise
        group.__exit__()
        if tracker is not None:
            tracker.wait_for(self.timeout_s)

    def _meet(self, rank: Rank) -> tuple[Any, dict[str, Any]]:
        """The tracker, which rank 0 owns, and the arguments that it has for all ranks."""
        if rank.rank:
            return None, json.loads(rank.meet(""))
        from xgboost.tracker import RabitTracker

        tracker = RabitTracker(rank.world_size, host_ip=rank.address, sortby="task")
        tracker.start()
        arguments = dict(tracker.worker_args())
        rank.meet(json.dumps(arguments))
        return tracker, arguments


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
