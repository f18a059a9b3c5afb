"""The trainable of a trainer: a training loop that every rank of a trial runs.

Also the shares of the datasets, and the validation of a checkpoint as a part of its report.
"""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import field, replace
from importlib import import_module
from itertools import islice
from typing import Any, Literal, Protocol, Self, runtime_checkable

from holdfast.dataclass import dataclass
from holdfast.experiment.worker import session as sessions
from holdfast.experiment.worker.job import GroupTerms
from holdfast.experiment.worker.metrics import plain_metrics
from holdfast.experiment.worker.objects import ObjectRef, get
from holdfast.experiment.worker.session import fails_nothing, here
from holdfast.experiment.worker.trainables import check_has_run, check_runs
from holdfast.plain_numbers import is_number, made_of_numbers
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.errors import StorageError
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig, InvalidMetrics, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.scaling import ScalingConfig
from holdfast.trial.space import Categorical, grid_values, is_searched
from holdfast.trial.trial import Validation
from holdfast.trial.values import LOOP_CONFIG, Path, key_name

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
        """True if each rank gets a part of the dataset `name`, rather than all of it."""
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
    shards: Mapping[str, Any] = getattr(session, "shards", {})  # of a RankSession
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


class ValidationFn(Protocol):
    """A function of a checkpoint, and of `fn_kwargs`, that returns metrics."""

    def __call__(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Validate the checkpoint, which is the first argument."""


@made_of_numbers
@dataclass(frozen=True)
class ValidationTaskConfig:
    """`fn_kwargs`: further arguments of the validation function. `timeout_s`: seconds after which
    a validation is interrupted; None for no such limit.

    The other ranks wait for the validation: one that takes longer than HOLDFAST_BARRIER_TIMEOUT_S
    ends the attempt. Raises InvalidConfig.
    """

    fn_kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fn_kwargs", dict(self.fn_kwargs or {}))
        most = self.timeout_s
        if most is not None and not (is_number(most) and most > 0):
            raise InvalidConfig(
                f"ValidationTaskConfig(timeout_s={most!r}) must be seconds above 0, or None"
            )


@dataclass(frozen=True)
class ValidationConfig:
    """Validates the checkpoints of `report(..., validation=True)`: with `fn(checkpoint,
    **fn_kwargs)`, a ValidationFn. `task_config` has the arguments where a report gives none.

    `fn` runs in the rank that has joined the checkpoint's files, before `report()` returns in any
    rank. So its metrics are in the row and the journal together with the checkpoint, and a restore
    has both or neither. `ray_remote_kwargs` has no effect: no other process is started.

    Raises InvalidConfig.
    """

    fn: ValidationFn
    task_config: ValidationTaskConfig | None = None
    ray_remote_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise InvalidConfig(
                f"ValidationConfig(fn={self.fn!r:.100}) must be a function of a checkpoint"
            )

    def task(self, asked: bool | ValidationTaskConfig) -> ValidationTaskConfig:
        """The task of a report with `validation=asked`."""
        usual = self.task_config or ValidationTaskConfig()
        if not isinstance(asked, ValidationTaskConfig):
            return usual
        return ValidationTaskConfig(
            fn_kwargs={**usual.fn_kwargs, **asked.fn_kwargs},
            timeout_s=usual.timeout_s if asked.timeout_s is None else asked.timeout_s,
        )

    def run(
        self, checkpoint: Checkpoint, asked: bool | ValidationTaskConfig
    ) -> tuple[Validation, dict[str, Any]]:
        """Call the function. An exception in it is printed; it does not fail the training."""
        task = self.task(asked)
        try:
            with interrupted_after(task.timeout_s):
                found = self.fn(checkpoint, **task.fn_kwargs)
            if not isinstance(found, Mapping):
                raise InvalidMetrics(
                    f"the validation function must return a dict of metrics, not {found!r:.100}"
                )
            return Validation.VALIDATED, plain_metrics(found)
        except _TooLate:
            _say(f"the validation of {checkpoint.path} took longer than {task.timeout_s:g} s")
            return Validation.VALIDATION_TIMEOUT, {}
        except Exception:  # printed: the report has its checkpoint, without these metrics
            _say(f"the validation of {checkpoint.path} failed:\n{traceback.format_exc()}")
            return Validation.VALIDATION_FAILED, {}


class _TooLate(BaseException):
    """Unwinds a validation: not an Exception, so that `except Exception` lets it pass."""


@contextmanager
def interrupted_after(seconds: float | None) -> Iterator[None]:
    """Raise _TooLate in the block when the time is over. Raises InvalidConfig in a thread other
    than the main one, where no signal can do that."""
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise InvalidConfig(
            f"ValidationTaskConfig(timeout_s={seconds:g}) works in the main thread only: call "
            f"report() there, or leave timeout_s out"
        )

    def interrupt(*_: object) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


SCALING = "scaling_config"
DATASETS = "datasets"
LOOPBACK = "127.0.0.1"
_SPACE = (LOOP_CONFIG, SCALING, DATASETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The number of this worker, and how many there are: of the trial, and on this machine; and
    the number of its machine among those of the trial.

    `address` is where the other ranks reach this one: loopback if all are on one machine. With
    `shares_gpu` a rank has a part of a GPU. `meet` passes rank 0's address to all others, and
    `gather` every rank's text to every rank.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node_count: int
    address: str
    uses_gpu: bool
    shares_gpu: bool
    meet: Callable[[str], str]
    gather: Callable[[str], list[str]]


class BackendConfig:
    """Sets up the process group of a trial's ranks; this base class sets up none.

    `modules` are imported once, before the ranks are forked.
    """

    modules: tuple[str, ...] = ()

    def joined(self, rank: Rank) -> AbstractContextManager[None]:
        """A context around the user's function in each rank."""
        return nullcontext()


@dataclass(frozen=True, kw_only=True)
class TrainLoop:
    """The user's function with everything needed to run it in a rank.

    `name` appears in the names of trials. `start` is the checkpoint from which a trial without its
    own begins. `scales`: each trial's config has its own ScalingConfig.

    Raises InvalidConfig for a function that cannot be called.
    """

    name: str
    function: Callable[..., Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    backend: BackendConfig = field(default_factory=BackendConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    scales: bool = False
    datasets: Mapping[str, Any] = field(default_factory=dict)
    data_config: DataConfig = field(default_factory=DataConfig)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    start: Checkpoint | None = None
    validation: ValidationConfig | None = None
    terms: GroupTerms = field(default_factory=GroupTerms)

    def __post_init__(self) -> None:
        check_loop(self.function)

    def import_modules(self) -> None:
        """Import the modules in the parent of the ranks, so that no rank has to."""
        for name in self.backend.modules:
            with suppress(ImportError):  # the rank that needs it raises it
                import_module(name)

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def holdfast_resources(
        self,
    ) -> PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory]:
        if self.scales:
            return lambda config: self.scaling_of(config).as_placement_group_factory()
        return self.scaling.as_placement_group_factory()

    def in_space(self, space: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """This loop as a Tuner runs it, and the search space with the loop's own config in it.

        Raises InvalidConfig for anything but parameters of a trainer.
        """
        own = getattr(self.function, "in_space", ())
        for name in space:
            if name not in (*_SPACE, *own):
                raise InvalidConfig(
                    f"param_space of a {self.name} has {', '.join(map(repr, _SPACE))}, not "
                    f"{name!r}: put what the loop reads from its config into "
                    f"{{{LOOP_CONFIG!r}: {{{name!r}: ...}}}}"
                )
        config = _dict_in(space, LOOP_CONFIG)
        whole: dict[str, Any] = {LOOP_CONFIG: {**self.config, **config}}
        whole |= {name: space[name] for name in own if name in space}
        if DATASETS in space:
            whole[DATASETS] = dict(_dict_in(space, DATASETS))
        if SCALING not in space:
            return self, whole
        scaling = space[SCALING]
        whole[SCALING] = scaling.chosen if isinstance(scaling, ScalingConfig) else scaling
        return replace(self, scales=True), whole

    def saving_by(self, run: RunConfig | None) -> tuple[Self, RunConfig | None]:
        """This loop with the frequency of checkpoints in a Tuner's RunConfig, if the loop is one
        that saves by itself, and the RunConfig without it."""
        saving_by = getattr(self.function, "saving_by", None)
        if saving_by is None or run is None:
            return self, run
        function, run = saving_by(run)
        return replace(self, function=function), run

    def scaling_of(self, config: Mapping[str, Any]) -> ScalingConfig:
        """The ScalingConfig of a trial with this config. Raises InvalidConfig."""
        chosen = config.get(SCALING) or {}
        try:
            return ScalingConfig(**{**self.scaling.chosen, **chosen})
        except TypeError as error:
            raise InvalidConfig(f"param_space[{SCALING!r}]: {error}") from error

    def check_datasets(self, space: Mapping[str, Any]) -> None:
        """Raises InvalidConfig for datasets that are empty, too small for the workers or gone.

        Checks what can be known before the first trial.
        """
        chosen = {**self.scaling.chosen, **(space.get(SCALING) or {})}
        ranks = 1 if is_searched(chosen) else self.scaling_of(space).most_workers
        self.data_config.check_rows({**self.datasets, **space.get(DATASETS, {})}, ranks)

    def check_constant(self) -> None:
        """Raises InvalidConfig if `fit()` would be a search."""
        for name, value in ((LOOP_CONFIG, self.config), (SCALING, self.scaling.chosen)):
            if is_searched(dict(value)):
                raise InvalidConfig(
                    f"{name} of a {self.name} has something to search in it, and fit() trains "
                    f"once: Tuner(trainer, param_space={{{name!r}: ...}}).fit() searches"
                )

    def __call__(self, config: dict[str, Any]) -> None:
        """Run the loop in this rank. Its return value is not reported."""
        session = sessions.current(f"{self.name}.fit()")
        from holdfast.experiment.worker.rank_session import RankSession  # not for the script

        assert isinstance(session, RankSession)
        place = session.assignment
        rank = Rank(
            rank=place.rank,
            world_size=place.world_size,
            local_rank=place.local_rank,
            local_world_size=place.local_world_size,
            node_rank=place.node_rank,
            node_count=place.node_count,
            address=place.node.address if place.node_count > 1 else LOOPBACK,
            uses_gpu=bool(self.scaling_of(config).use_gpu),
            shares_gpu=0 < place.bundles[-1].get("GPU", 0) < 1,
            meet=session.meet,
            gather=session.gather,
        )
        if rank.world_size > 1 and not session.job.capture:
            raise TuneError(
                f"{rank.world_size} workers cannot train together in the debug mode, where trials "
                f"run in the script's own process: ScalingConfig(num_workers=1) can be debugged"
            )
        session.wait_for_all()
        session.begin_from(self.start)
        session.validate = None if self.validation is None else self.validation.run
        datasets = {**self.datasets, **config.get(DATASETS, {})}
        session.shards = self.data_config.shards(datasets, rank.world_size)[rank.rank]
        given = config.get(LOOP_CONFIG, self.config)
        if (chosen := getattr(self.function, "chosen", None)) is not None:
            given = {**given, **chosen(config)}
        arguments = (dict(given),) if _takes(self.function, {}) else ()
        with ExitStack() as joined:
            joined.enter_context(self.backend.joined(rank))
            check_has_run(self.function(*arguments))
            with fails_nothing():
                joined.close()


def _dict_in(space: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Raises InvalidConfig."""
    found = space.get(name, {})
    if not isinstance(found, Mapping):
        raise InvalidConfig(f"param_space[{name!r}] must be a dict, not {found!r}")
    return found


def check_loop(function: Any) -> None:
    """Raises InvalidConfig unless it is a function of a config, or of nothing."""
    if not callable(function):
        raise InvalidConfig(
            f"train_loop_per_worker must be a function of one config dict, or of nothing, not "
            f"{function!r:.100}"
        )
    check_runs(function)
    if not (_takes(function) or _takes(function, {})):
        name = getattr(function, "__name__", type(function).__name__)
        raise InvalidConfig(
            f"train_loop_per_worker {name}{inspect.signature(function)} must take one argument, "
            f"the config dict, or none"
        )


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    """True if these arguments fit its signature, and for a builtin without one."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
