"""`LightGBMTrainer`, and the network of the ranks of one trial: LightGBM's own sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from holdfast.compat.advice import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.train_loop import (
    TRAIN_DATASET_KEY,
    BackendConfig,
    DataConfig,
    Rank,
)
from holdfast.lazy import LIGHTGBM
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.boosting import Boosting, BoostingTrainer
from holdfast.train.ports import place_of_each
from holdfast.train.reporting import RoundReports
from holdfast.trial.config import RunConfig
from holdfast.trial.scaling import ScalingConfig

# Where LightGBM in this process, which is one rank, finds the others.
_network: dict[str, Any] = {}


@dataclass(unsafe_hash=True)
class LightGBMConfig(Assignable, BackendConfig):
    """The ranks train one model together: add `get_network_params()` to LightGBM's parameters.

    Raises ImportError if LightGBM is not installed, or too old.
    """

    modules = ("lightgbm",)

    def __post_init__(self) -> None:
        LIGHTGBM.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises TuneError if no port is free."""
        if rank.world_size == 1:
            yield
            return
        with place_of_each(rank) as places:
            _network.update(
                machines=",".join(places),
                num_machines=rank.world_size,
                local_listen_port=int(places[rank.rank].rpartition(":")[2]),
            )
            yield


def get_network_params() -> dict[str, Any]:
    """The addresses that LightGBM's parameters need so that the ranks train one model.

    Empty with a single rank. You choose how they train: `tree_learner`, and `pre_partition=True`
    if each rank has its own rows. LightGBM opens its port once per process, so that a loop can
    train one model with it.

    Raises NotInTrial outside of a trial.
    """
    get_context()
    return dict(_network)


class _Rounds(Boosting):
    takes = ("feval", "callbacks")
    # LightGBM does not gather metrics: each rank evaluates all rows of the other datasets.
    splits = (TRAIN_DATASET_KEY,)

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> Any:
        from holdfast.train.lightgbm.callback import TrainReportCallback

        return TrainReportCallback.get_model(checkpoint)

    @staticmethod
    def rounds_of(model: Any) -> int:
        return model.current_iteration()

    def train(self, config: dict[str, Any], model: Any, rounds: int) -> None:
        import lightgbm

        from holdfast.train.lightgbm.callback import (
            CHECKPOINT_NAME,
            TrainReportCallback,
            delayed_reports,
        )

        if network := get_network_params():
            config = {"tree_learner": "data_parallel", "pre_partition": True, **config, **network}
        tables = self.tables()
        first = tables.pop(TRAIN_DATASET_KEY)
        data = lightgbm.Dataset(first.features, first.label, params=config)
        valid = {
            name: lightgbm.Dataset(table.features, table.label, reference=data)
            for name, table in tables.items()
        }
        arguments = dict(self.train_arguments)
        callbacks = list(arguments.pop("callbacks", ()))
        own = [one for one in callbacks if isinstance(one, TrainReportCallback)]
        reports = RoundReports(None, CHECKPOINT_NAME, self.frequency, self.checkpoint_at_end)
        trained = lightgbm.train(
            config,
            data,
            num_boost_round=rounds,
            valid_sets=[data, *valid.values()],
            valid_names=[TRAIN_DATASET_KEY, *valid],
            init_model=model,
            callbacks=callbacks if own else [*callbacks, *delayed_reports(reports)],
            keep_training_booster=True,  # it has all rounds, even after an early stop
            **arguments,
        )
        if not own:
            reports.report(trained.current_iteration(), trained.save_model, is_last=True)


class LightGBMTrainer(BoostingTrainer):
    """A DataParallelTrainer whose ranks train one model together (`lightgbm_config`).

    Without `train_loop_per_worker` it calls `lightgbm.train` itself, with `params`,
    `num_boost_round` (10) and `feval`. It trains on the rows of `datasets["train"]`, whose label
    is `label_column`, and evaluates the other datasets. Each rank evaluates them whole unless
    `dataset_config` splits them, because LightGBM does not gather metrics and all ranks must stop
    in the same round. Several ranks train with `tree_learner="data_parallel"` unless `params` say
    otherwise. Each round is reported. In the RunConfig's `checkpoint_config`,
    `checkpoint_frequency` and `checkpoint_at_end` say when the model is saved. After a failure the
    training resumes with that model. To search, put the parameters into `param_space` as
    `params`.

    For the other parameters see DataParallelTrainer.

    Raises InvalidConfig, and ImportError if LightGBM is not installed, or too old.
    """

    _backend_type: ClassVar[type[BackendConfig]] = LightGBMConfig
    _boosting: ClassVar[type[Boosting]] = _Rounds

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
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
            train_arguments=train_arguments,
        )
