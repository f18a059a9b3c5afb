"""The base of XGBoostTrainer and LightGBMTrainer, which can train without a user's loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from holdfast.api.trainer import DataParallelTrainer
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_checkpoint, get_context
from holdfast.experiment.worker.train_loop import TRAIN_DATASET_KEY, DataConfig, get_dataset_shard
from holdfast.plain_numbers import takes_numbers
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    import pandas as pd


ROUNDS = 10  # the default of both libraries
_PARAMS, _ROUNDS = "params", "num_boost_round"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    """A rank's rows of one dataset: the label and everything else."""

    features: pd.DataFrame
    label: pd.Series[Any]


@dataclass(frozen=True, kw_only=True)
class Boosting(ABC):
    """The loop of a trainer that was given none: the trial's config has the parameters.

    `train_arguments` are passed to the library's own `train`. `dataset_names` are the names of
    the trainer's datasets.
    """

    in_space: ClassVar[tuple[str, ...]] = (_PARAMS, _ROUNDS)
    # The names allowed in `train_arguments`, and the datasets that are split without a DataConfig.
    takes: ClassVar[tuple[str, ...]]
    splits: ClassVar[Literal["all"] | Sequence[str]] = "all"

    label_column: Any
    num_boost_round: int = ROUNDS
    frequency: int = 0
    checkpoint_at_end: bool = True
    dataset_names: tuple[str, ...] = (TRAIN_DATASET_KEY,)
    train_arguments: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    @abstractmethod
    def get_model(checkpoint: Checkpoint) -> Any:
        """The library's Booster that `train` saved."""

    @staticmethod
    @abstractmethod
    def rounds_of(model: Any) -> int: ...

    @abstractmethod
    def train(self, config: dict[str, Any], model: Any, rounds: int) -> None:
        """Train this many more rounds, from `model` if there is one."""

    def __call__(self, config: dict[str, Any]) -> None:
        begun, config = get_checkpoint(), dict(config)
        model = None if begun is None else self.get_model(begun)
        rounds = config.pop(_ROUNDS, self.num_boost_round)
        left = rounds - (0 if model is None else self.rounds_of(model))
        if left > 0:
            self.train(config, model, left)

    @staticmethod
    def chosen(config: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that a trial's config has under the names of the trainer's own."""
        rounds = {_ROUNDS: config[_ROUNDS]} if _ROUNDS in config else {}
        return {**config.get(_PARAMS, {}), **rounds}

    def saving_by(self, run: RunConfig) -> tuple[Boosting, RunConfig]:
        """This loop with the frequency of checkpoints in a RunConfig, and that without it: here
        the loop decides when to save, and not a step of a class trainable."""
        kept = run.checkpoint_config
        loop = self
        if kept.checkpoint_frequency or kept.checkpoint_at_end is not None:
            loop = replace(
                self,
                frequency=kept.checkpoint_frequency or 0,
                checkpoint_at_end=kept.checkpoint_at_end is not False,
            )
        kept = replace(kept, checkpoint_frequency=0, checkpoint_at_end=None)
        return loop, replace(run, checkpoint_config=kept)

    def tables(self) -> dict[str, RankTable]:
        """By name, the training data first. Raises InvalidConfig for unusable data."""
        return {name: self._table(name) for name in self.dataset_names}

    def _table(self, name: str) -> RankTable:
        frame = as_frame(get_dataset_shard(name))
        context = get_context()
        if not len(frame):
            raise InvalidConfig(
                f"rank {context.get_world_rank()} of {context.get_world_size()} has no row of the "
                f"dataset {name!r}: it needs at least one for each worker"
            )
        if self.label_column not in frame.columns:
            raise InvalidConfig(
                f"label_column={self.label_column!r} is not a column of the dataset {name!r}: "
                f"{', '.join(map(repr, frame.columns))}"
            )
        label = frame[self.label_column]
        return RankTable(features=frame.drop(columns=self.label_column), label=label)


def as_frame(shard: Any) -> pd.DataFrame:
    """A shard of a dataset as a DataFrame; it may be one, convert itself, or consist of rows."""
    import pandas as pd

    if isinstance(shard, pd.DataFrame):
        return shard
    whole = shard.materialize() if hasattr(shard, "materialize") else shard
    if hasattr(whole, "to_pandas"):
        return whole.to_pandas()
    return pd.DataFrame(list(whole))


class BoostingTrainer(DataParallelTrainer):
    """A DataParallelTrainer that calls its library's `train` itself if it is given no loop."""

    _boosting: ClassVar[type[Boosting]]

    @takes_numbers
    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None,
        *,
        train_loop_config: Mapping[str, Any] | None,
        run_config: RunConfig | None,
        datasets: Mapping[str, Any] | None,
        dataset_config: DataConfig | None,
        label_column: str | None,
        params: Mapping[str, Any] | None,
        num_boost_round: int | None,
        train_arguments: Mapping[str, Any],
        **settings: Any,
    ) -> None:
        own = {"label_column": label_column, "params": params, "num_boost_round": num_boost_round}
        if train_loop_per_worker is None:
            self._check(own, train_arguments, datasets or {})
            loop = self._boosting(
                label_column=label_column,
                num_boost_round=num_boost_round or ROUNDS,
                dataset_names=tuple(
                    sorted(datasets or {}, key=lambda name: name != TRAIN_DATASET_KEY)
                ),
                train_arguments=dict(train_arguments),
            )
            train_loop_per_worker, run_config = loop.saving_by(run_config or RunConfig())
            train_loop_config = {**(params or {}), **(train_loop_config or {})}
            dataset_config = dataset_config or DataConfig(self._boosting.splits)
        else:
            given = [name for name, value in own.items() if value is not None]
            self._refuse([*given, *train_arguments])
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            **settings,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Any:
        """The Booster in a checkpoint of a training without a user's loop."""
        return cls._boosting.get_model(checkpoint)

    @classmethod
    def _refuse(cls, given: Sequence[str]) -> None:
        """Raises InvalidConfig for arguments that are meaningless with a loop."""
        if given:
            raise InvalidConfig(
                f"{cls.__name__}({given[0]}=...) is for a training without train_loop_per_worker: "
                f"with one, pass its settings in train_loop_config"
            )

    @classmethod
    def _check(
        cls,
        own: Mapping[str, Any],
        train_arguments: Mapping[str, Any],
        datasets: Mapping[str, Any],
    ) -> None:
        """Raises InvalidConfig for settings that cannot be trained without a loop."""
        name, rounds = cls.__name__, own["num_boost_round"]
        if own["label_column"] is None or own["params"] is None:
            raise InvalidConfig(
                f"{name} needs train_loop_per_worker, or label_column, params and "
                f"datasets={{{TRAIN_DATASET_KEY!r}: ...}}"
            )
        if not isinstance(own["params"], Mapping):
            raise InvalidConfig(f"{name}(params={own['params']!r:.100}) must be a dict")
        if rounds is not None and (not isinstance(rounds, int) or rounds < 1):
            raise InvalidConfig(f"{name}(num_boost_round={rounds!r}) must be 1 or more")
        unknown = [argument for argument in train_arguments if argument not in cls._boosting.takes]
        if unknown:
            raise InvalidConfig(
                f"{name}({unknown[0]}=...): it takes besides its own parameters "
                f"{', '.join(cls._boosting.takes)}"
            )
        if TRAIN_DATASET_KEY not in datasets:
            raise InvalidConfig(
                f"{name} learns from datasets[{TRAIN_DATASET_KEY!r}], and the datasets are "
                f"{sorted(datasets)}"
            )
