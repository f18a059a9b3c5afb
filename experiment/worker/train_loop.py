"""The trainable of a trainer: a training loop that every rank of a trial runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import field, replace
from importlib import import_module
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.experiment.worker import session as sessions
from holdfast.experiment.worker.afterwards import fails_nothing
from holdfast.experiment.worker.data_config import DataConfig
from holdfast.experiment.worker.job import GroupTerms
from holdfast.experiment.worker.rank_session import RankSession
from holdfast.experiment.worker.training.validation import ValidationConfig
from holdfast.experiment.worker.wrap import check_has_run, check_runs
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.scaling import ScalingConfig
from holdfast.trial.space import is_searched
from holdfast.trial.values import LOOP_CONFIG

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
    """Whether it can be called so; True for a builtin without a signature."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
