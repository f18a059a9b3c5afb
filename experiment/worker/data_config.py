"""Splits a trainer's datasets among its ranks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal, Protocol, runtime_checkable

from holdfast.experiment.worker.objects import ObjectRef, get
from holdfast.experiment.worker.rank_session import RankSession
from holdfast.experiment.worker.session import here
from holdfast.syncer.errors import StorageError
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.space import Categorical, grid_values
from holdfast.trial.values import Path, key_name

TRAIN_DATASET_KEY = "train"
"""The key of the training data in the `datasets` of a trainer."""
_WORKERS = ("worker_handles", "worker_node_ids")  # parameters of Ray's `configure`


@runtime_checkable
class Dealt(Protocol):
    """A dataset that splits itself, as those of holdfast.data do."""

    def check(self, ranks: int) -> None:
        """Raises TuneError, calling the dataset "it", if this many ranks cannot share it."""

    def deal(self, rank: int, ranks: int) -> Any:
        """The part of one rank. Raises as `check` does."""


class ExecutionOptions:
    """Settings of Ray's engine for datasets: each can be set, and none has an effect."""

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)

    def __getattr__(self, name: str) -> Any:
        """Groups of settings are there without being made: `options.resource_limits.cpu = 2`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, ExecutionOptions())


class DataConfig:
    """Says which of a trainer's `datasets` are split among its ranks; every rank gets the others
    whole.

    `datasets_to_split`: "all", or a list of names. The other parameters have no effect. A subclass
    may override `configure`.

    Raises InvalidConfig for anything else.
    """

    datasets_to_split: Literal["all"] | Sequence[str] = "all"

    def __init__(
        self,
        datasets_to_split: Literal["all"] | Sequence[str] = "all",
        execution_options: object = None,
        enable_shard_locality: bool = True,
    ) -> None:
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
        """Raises InvalidConfig if `datasets_to_split` names an unknown dataset."""
        named = self.datasets_to_split
        for name in () if named == "all" else named:
            if name not in datasets:
                raise InvalidConfig(
                    f"DataConfig(datasets_to_split={named!r}) names {name!r}, and the datasets "
                    f"are {sorted(datasets)}"
                )

    def check_rows(self, datasets: Mapping[str, Any], ranks: int) -> None:
        """Raises InvalidConfig, naming the dataset, if this many ranks cannot share it or its
        files are missing.

        Only datasets that split themselves can be checked now. A grid or a choice of several
        datasets may take the place of one.
        """
        for name, dataset in datasets.items():
            check_datasets({name: dataset}, ranks if self.splits(name) else 1)

    def splits(self, name: str) -> bool:
        """Whether each rank gets a part of the dataset `name`, rather than all of it."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split

    def shards(self, datasets: Mapping[str, Any], world_size: int) -> list[dict[str, Any]]:
        """The result of `configure`, of a subclass as well that takes the parameters of Ray's
        documentation: handles and node ids of workers, which are None here."""
        takes = inspect.signature(self.configure).parameters
        nobody = {name: [None] * world_size for name in _WORKERS if name in takes}
        return self.configure(datasets, world_size, **nobody)

    @staticmethod
    def default_ingest_options() -> ExecutionOptions:
        """Options for `execution_options`."""
        return ExecutionOptions()

    def configure(
        self, datasets: Mapping[str, Any], world_size: int, *args: Any, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """For each rank, the results of `get_dataset_shard` by name.

        A dataset is anything that can be iterated over, a function that returns such a thing, or
        what `holdfast.put` returned for it: a sequence, a torch Dataset, a DataFrame. A part of it
        has the same type. Datasets with a length and an index are split without being read. A
        dataset of holdfast.data gives each rank a DataIterator.

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
    """This rank's part of a dataset of the trainer; None if the trainer has no datasets.

    The name may be left out if there is one dataset. For a dataset of holdfast.data, the part is a
    DataIterator. From any other, a rank gets every `world_size`-th item, starting with the item
    that has the rank's number; so parts differ by at most one item.

    Raises NotInTrial outside a trainer's loop, TuneError for an unknown name.
    """
    session = here("train.get_dataset_shard()")
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
    """Every `step`-th item of something with a length and an index, starting with `start`."""

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
    """Every `step`-th item of something that can only be iterated over."""

    def __init__(self, dataset: Iterable[Any], start: int, step: int) -> None:
        self._dataset, self._start, self._step = dataset, start, step

    def __iter__(self) -> Iterator[Any]:
        return islice(self._dataset, self._start, None, self._step)


def shard_of(dataset: Any, rank: int, world_size: int) -> Any:
    """One rank's part. Raises InvalidConfig if the dataset cannot be iterated over item by
    item."""
    if hasattr(dataset, "iloc"):  # a DataFrame, whose items are columns to Python
        return dataset.iloc[rank::world_size]
    if isinstance(dataset, (Mapping, str)):
        raise InvalidConfig(f"a dataset must have items, but {dataset!r:.100} is a single value")
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return Shard(dataset, rank, world_size)
    if isinstance(dataset, Iterable):
        return IterableShard(dataset, rank, world_size)
    raise InvalidConfig(
        f"a dataset must be something to iterate over, or a function that returns it, not "
        f"{dataset!r:.100}"
    )


class Remade:
    """The result of a function that can be iterated over only once, created again each time."""

    def __init__(self, make: Callable[[], Any], first: Iterator[Any]) -> None:
        self._make = make
        self._first: Iterator[Any] | None = first

    def __iter__(self) -> Iterator[Any]:
        first, self._first = self._first, None
        return iter(self._make()) if first is None else first


def _made(dataset: Any | Callable[[], Any]) -> Any:
    """The dataset of a function or a reference. Raises ObjectLost if the referenced object is
    gone."""
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
    """Replace "it" in an error by the dataset's name."""
    try:
        yield
    except StorageError:
        raise  # it names the file, and may not occur again
    except TuneError as error:
        raise InvalidConfig(f"the dataset {name!r}: {error}") from error
