"""Which part of a trainer's datasets each rank gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal, Protocol, runtime_checkable

from holdfast.experiment.worker.objects import ObjectRef, get
from holdfast.experiment.worker.rank_session import RankSession
from holdfast.experiment.worker.session import current
from holdfast.syncer.errors import StorageError
from holdfast.trial.domains import Categorical
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.space import grid_values
from holdfast.trial.values import Path, key_name

TRAIN_DATASET_KEY = "train"
"""The key of the training data in the `datasets` of a trainer."""


@runtime_checkable
class Dealt(Protocol):
    """A dataset that says itself what each rank is given of it, as those of holdfast.data do."""

    def check(self, ranks: int) -> None:
        """Raises TuneError, saying of "it" what is wrong, where so many ranks cannot share it."""

    def deal(self, rank: int, ranks: int) -> Any:
        """The part of one rank. Raises as `check` does."""


class DataConfig:
    """Which of a trainer's `datasets` are split among its ranks; every rank gets the others whole.

    `datasets_to_split`: "all", or a list of names.

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

    def check_rows(self, datasets: Mapping[str, Any], ranks: int) -> None:
        """Raises InvalidConfig, naming the dataset, for one that so many ranks cannot share, or
        whose files are not there; of what does not say it itself nothing is known yet.

        In place of a dataset there may be a grid or a choice of several.
        """
        for name, dataset in datasets.items():
            check_datasets({name: dataset}, ranks if self.splits(name) else 1)

    def splits(self, name: str) -> bool:
        """Whether each rank gets a part of the dataset `name`, rather than all of it."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split

    def configure(self, datasets: Mapping[str, Any], world_size: int) -> list[dict[str, Any]]:
        """By rank, what `get_dataset_shard` gives there.

        A dataset is anything that can be iterated over, a function that makes one, or what
        `holdfast.put` gave for one: a sequence, a torch Dataset, a DataFrame, of which a part is
        one, too. What has a length and an index is split without being read. One of holdfast.data
        gives each rank a DataIterator.

        Raises InvalidConfig as `check` does, and for what cannot be split.
        """
        self.check(datasets)
        made = {name: _made(dataset) for name, dataset in datasets.items()}
        return [
            {name: self._given(name, made[name], rank, world_size) for name in made}
            for rank in range(world_size)
        ]

    def _given(self, name: str, dataset: Any, rank: int, world_size: int) -> Any:
        splits = self.splits(name)
        if isinstance(dataset, Dealt):
            with _naming(name):
                return dataset.deal(rank, world_size) if splits else dataset.deal(0, 1)
        return shard_of(dataset, rank, world_size) if splits else dataset


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This rank's part of a dataset that the trainer was given; None where it was given none.

    The name may be left out where there is one dataset. Of one of holdfast.data it is a
    DataIterator; of any other every `world_size`-th item belongs to a rank, beginning with the
    item that its rank counts, so that parts differ by one item at most.

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
    """Raises ObjectLost for a reference to what is not there any more."""
    if isinstance(dataset, ObjectRef):
        return get(dataset)
    is_maker = callable(dataset) and not hasattr(dataset, "__getitem__")
    if not is_maker or isinstance(dataset, Iterable):
        return dataset
    made = dataset()
    return Remade(dataset, made) if isinstance(made, Iterator) else made


def check_datasets(space: Mapping[str, Any], ranks: int = 1) -> None:
    """Raises InvalidConfig as `DataConfig.check_rows`, for all datasets of a search space."""
    for path, dataset in _datasets_in(space, ()):
        with _naming(key_name(path)):
            dataset.check(ranks)


def _datasets_in(value: Any, path: Path) -> Iterator[tuple[Path, Dealt]]:
    found = value.categories if isinstance(value, Categorical) else grid_values(value)
    if found is not None:
        for one in found:
            yield from _datasets_in(one, path)
    elif isinstance(value, Dealt):
        yield path, value
    elif isinstance(value, (dict, list, tuple)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _datasets_in(one, (*path, key))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """An error about "it" says which dataset that is."""
    try:
        yield
    except StorageError:
        raise  # it names the file, and may be gone when it is tried again
    except TuneError as error:
        raise InvalidConfig(f"the dataset {name!r}: {error}") from error
