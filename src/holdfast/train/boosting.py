"""What XGBoost and LightGBM have in common: rounds, each reported once, and tables of data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.experiment.context import get_context, report
from holdfast.experiment.data_config import TRAIN_DATASET_KEY, get_dataset_shard
from holdfast.train.reporting import Metrics, Save, check_metrics, chosen, report_saved
from holdfast.trial.config import CheckpointConfig, RunConfig
from holdfast.trial.errors import InvalidConfig, InvalidMetrics

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 10  # what both libraries' users get who do not say how many


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReports:
    """Which of a round's metrics are reported, and after which rounds the model is saved.

    Raises InvalidConfig.
    """

    metrics: Metrics
    filename: str
    frequency: int
    checkpoint_at_end: bool
    results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if not isinstance(self.frequency, int) or self.frequency < 0:
            raise InvalidConfig(
                f"frequency={self.frequency!r} must be a number of rounds, 0 for never"
            )

    def row(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What is reported of a round. Raises InvalidMetrics."""
        row = chosen(found, self.metrics)
        if self.results_postprocessing_fn is None:
            return row
        made = self.results_postprocessing_fn(row)
        if not isinstance(made, Mapping):
            raise InvalidMetrics(
                f"results_postprocessing_fn must return a dict of metrics, not {made!r:.100}"
            )
        return dict(made)

    def saves(self, rounds: int, *, is_last: bool) -> bool:
        """Whether the model is saved when it has so many rounds."""
        if is_last and self.checkpoint_at_end:
            return True
        return bool(self.frequency) and rounds % self.frequency == 0

    def report(self, row: Mapping[str, Any], rounds: int, save: Save, *, is_last: bool) -> None:
        """One iteration of the trial."""
        if self.saves(rounds, is_last=is_last):
            report_saved(row, self.filename, save)
        else:
            report(row)


# -- a training without a loop of the user's ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A rank's rows of one dataset: the label and everything else."""

    features: pd.DataFrame
    label: pd.Series[Any]


@dataclass(frozen=True, kw_only=True)
class Boosting:
    """The loop of a trainer that is given none: parameters are the trial's config.

    `train_arguments` go to the library's own `train`. `dataset_names` are those that the trainer
    was given.
    """

    label_column: str
    num_boost_round: int = ROUNDS
    frequency: int = 0
    checkpoint_at_end: bool = True
    dataset_names: tuple[str, ...] = (TRAIN_DATASET_KEY,)
    train_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, config: dict[str, Any]) -> None:
        raise NotImplementedError

    def tables(self) -> dict[str, Table]:
        """By name, the training data first. Raises InvalidConfig for what cannot be learned."""
        return {name: self._table(name) for name in self.dataset_names}

    def _table(self, name: str) -> Table:
        frame = as_frame(get_dataset_shard(name))
        context = get_context()
        if not len(frame):
            raise InvalidConfig(
                f"rank {context.get_world_rank()} of {context.get_world_size()} has no row of the "
                f"dataset {name!r}: it needs at least one for each worker"
            )
        if self.label_column not in frame.columns:
            raise InvalidConfig(
                f"label_column={self.label_column!r} is no column of the dataset {name!r}: "
                f"{', '.join(map(repr, frame.columns))}"
            )
        label = frame[self.label_column]
        return Table(features=frame.drop(columns=self.label_column), label=label)


def as_frame(shard: Any) -> pd.DataFrame:
    """A shard of a dataset, as a DataFrame: one that it is, or makes itself, or rows of."""
    import pandas as pd

    if isinstance(shard, pd.DataFrame):
        return shard
    whole = shard.materialize() if hasattr(shard, "materialize") else shard
    if hasattr(whole, "to_pandas"):
        frame: pd.DataFrame = whole.to_pandas()
        return frame
    return pd.DataFrame(list(whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loopless:
    """What a trainer is told instead of a loop. `takes` are the names that go to the library's
    `train` besides."""

    trainer: str
    label_column: str | None
    params: Mapping[str, Any] | None
    num_boost_round: int | None
    train_arguments: Mapping[str, Any]
    takes: tuple[str, ...]

    def refuse(self) -> None:
        """Raises InvalidConfig where there is a loop, too."""
        given = [name for name, value in self._said() if value is not None]
        given += list(self.train_arguments)
        if given:
            raise InvalidConfig(
                f"{self.trainer}({given[0]}=...) is for a training without train_loop_per_worker: "
                f"with one, give it what it needs in train_loop_config"
            )

    def check(self, datasets: Mapping[str, Any] | None) -> tuple[str, ...]:
        """The names of the datasets, the training data first. Raises InvalidConfig."""
        if self.label_column is None or self.params is None:
            raise InvalidConfig(
                f"{self.trainer} needs train_loop_per_worker, or label_column, params and "
                f"datasets={{{TRAIN_DATASET_KEY!r}: ...}}"
            )
        unknown = [name for name in self.train_arguments if name not in self.takes]
        if unknown:
            raise InvalidConfig(
                f"{self.trainer}({unknown[0]}=...): it takes besides its own parameters "
                f"{', '.join(self.takes)}"
            )
        names = tuple(datasets or ())
        if TRAIN_DATASET_KEY not in names:
            raise InvalidConfig(
                f"{self.trainer} learns from datasets[{TRAIN_DATASET_KEY!r}], and the datasets "
                f"are {sorted(names)}"
            )
        return (TRAIN_DATASET_KEY, *(name for name in names if name != TRAIN_DATASET_KEY))

    def _said(self) -> list[tuple[str, Any]]:
        return [
            ("label_column", self.label_column),
            ("params", self.params),
            ("num_boost_round", self.num_boost_round),
        ]

    def boosting(
        self, kind: type[Boosting], datasets: Mapping[str, Any] | None, kept: CheckpointConfig
    ) -> Boosting:
        names = self.check(datasets)
        assert self.label_column is not None
        return kind(
            label_column=self.label_column,
            num_boost_round=self.num_boost_round or ROUNDS,
            frequency=kept.checkpoint_frequency or 0,
            checkpoint_at_end=kept.checkpoint_at_end is not False,
            dataset_names=names,
            train_arguments=dict(self.train_arguments),
        )


def without_frequency(run_config: RunConfig) -> RunConfig:
    """When it is saved is the loop's to know here, and not for a step of a class."""
    kept = replace(run_config.checkpoint_config, checkpoint_frequency=0, checkpoint_at_end=None)
    return replace(run_config, checkpoint_config=kept)
