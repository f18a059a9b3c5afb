"""Which part of a trainer's datasets each rank gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from holdfast.experiment.rank_session import RankSession
from holdfast.experiment.session import current
from holdfast.trial.errors import InvalidConfig, TuneError

TRAIN_DATASET_KEY = "train"


class DataConfig:
    """Which of a trainer's `datasets` are split among its ranks; every rank gets the others whole.

    Raises InvalidConfig for what is neither "all" nor a list of names.
    """

    def __init__(self, datasets_to_split: Literal["all"] | Sequence[str] = "all") -> None:
        is_list = isinstance(datasets_to_split, Sequence) and not isinstance(
            datasets_to_split, str
        )
        if datasets_to_split != "all" and not is_list:
            raise InvalidConfig(
                f"DataConfig(datasets_to_split={datasets_to_split!r}) must be 'all' or a list of "
                f"names of datasets"
            )
        self.datasets_to_split = datasets_to_split

    def check(self, datasets: Mapping[str, Any]) -> None:
        """Raises InvalidConfig for a name that is not there."""
        named = self.datasets_to_split
        for name in () if named == "all" else named:
            if name not in datasets:
                raise InvalidConfig(
                    f"DataConfig(datasets_to_split={named!r}) names {name!r}, and the datasets "
                    f"are {sorted(datasets)}"
                )

    def configure(self, datasets: Mapping[str, Any], world_size: int) -> list[dict[str, Any]]:
        """By rank, what `get_dataset_shard` gives there.

        A dataset is anything that can be iterated over, or a function that makes one: a sequence,
        a torch Dataset, a DataFrame, of which a part is one, too. What has a length and an index
        is split without being read.

        Raises InvalidConfig as `check` does, and for what cannot be split.
        """
        self.check(datasets)
        named = self.datasets_to_split
        split = datasets if named == "all" else named
        made = {name: _made(dataset) for name, dataset in datasets.items()}
        return [
            {
                name: shard_of(dataset, rank, world_size) if name in split else dataset
                for name, dataset in made.items()
            }
            for rank in range(world_size)
        ]


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This rank's part of a dataset that the trainer was given; None where it was given none.

    The name may be left out where there is one dataset. Every `world_size`-th item belongs to a
    rank, beginning with the item that its rank counts, so that parts differ by one item at most.

    Raises NotInTrial outside of a trainer's loop, TuneError for a name that is not there.
    """
    session = current("train.get_dataset_shard()")
    shards = session.shards if isinstance(session, RankSession) else {}
    if not shards:
        return None
    if dataset_name is None and len(shards) == 1:
        return next(iter(shards.values()))
    if dataset_name is None or dataset_name not in shards:
        raise TuneError(
            f"get_dataset_shard({dataset_name!r}): the datasets of this trainer are "
            f"{sorted(shards)}"
        )
    return shards[dataset_name]


class Shard:
    """Every `step`-th item of something with a length and an index, beginning with `start`."""

    def __init__(self, dataset: Any, start: int, step: int) -> None:
        self._dataset = dataset
        self._places = range(start, len(dataset), step)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[self._places[index]]

    def __iter__(self) -> Iterator[Any]:
        return (self._dataset[place] for place in self._places)


class IterableShard:
    """Every `step`-th item of what can only be iterated over."""

    def __init__(self, dataset: Iterable[Any], start: int, step: int) -> None:
        self._dataset, self._start, self._step = dataset, start, step

    def __iter__(self) -> Iterator[Any]:
        return islice(self._dataset, self._start, None, self._step)


def shard_of(dataset: Any, rank: int, world_size: int) -> Any:
    """Raises InvalidConfig for what cannot be iterated over, item by item."""
    if hasattr(dataset, "iloc"):  # a DataFrame, whose items are columns to Python
        return dataset.iloc[rank::world_size]
    if isinstance(dataset, (Mapping, str)):
        raise InvalidConfig(f"a dataset has items, and {dataset!r:.100} is one thing")
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return Shard(dataset, rank, world_size)
    if isinstance(dataset, Iterable):
        return IterableShard(dataset, rank, world_size)
    raise InvalidConfig(
        f"a dataset is something that can be iterated over, or a function that makes one, not "
        f"{dataset!r:.100}"
    )


class Remade:
    """What a function makes that can be gone through once, made again for each time."""

    def __init__(self, make: Callable[[], Any], first: Iterator[Any]) -> None:
        self._make = make
        self._first: Iterator[Any] | None = first

    def __iter__(self) -> Iterator[Any]:
        first, self._first = self._first, None
        return iter(self._make()) if first is None else first


def _made(dataset: Any | Callable[[], Any]) -> Any:
    is_maker = callable(dataset) and not hasattr(dataset, "__getitem__")
    if not is_maker or isinstance(dataset, Iterable):
        return dataset
    made = dataset()
    return Remade(dataset, made) if isinstance(made, Iterator) else made
