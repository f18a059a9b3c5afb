"""A training loop that every rank of a trial runs, as the trainable of an experiment."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from holdfast.experiment import session as sessions
from holdfast.experiment.rank_session import RankSession
from holdfast.syncer.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.scaling import ScalingConfig

LOOP_CONFIG = "train_loop_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Which worker of how many this is. `meet` gives rank 0's address to all others."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    uses_gpu: bool
    meet: Callable[[str], str]


class BackendConfig:
    """How the ranks of a trial are made into one group; this one leaves each to itself."""

    def joined(self, rank: Rank) -> AbstractContextManager[None]:
        """Entered in each rank, around the user's function."""
        return nullcontext()


class TrainLoop:
    """The user's function with all that is needed to run it in a rank."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        config: Mapping[str, Any] | None,
        backend: BackendConfig,
        scaling: ScalingConfig,
        start: Checkpoint | None,
    ) -> None:
        """`name` is what trials are called by; `start` is where a trial without a checkpoint of
        its own begins. Raises InvalidConfig for a function that cannot be called."""
        check_loop(function)
        self.__name__ = name
        self.function = function
        self.config = dict(config or {})
        self.backend = backend
        self.scaling = scaling
        self.start = start

    @property
    def holdfast_resources(self) -> PlacementGroupFactory:
        return self.scaling.as_placement_group_factory()

    def __call__(self, config: dict[str, Any]) -> None:
        """Run the loop in this rank; what it returns is not reported."""
        session = sessions.current(f"{self.__name__}.fit()")
        if not isinstance(session, RankSession):
            raise TuneError(
                f"{self.__name__} needs worker processes, and there are none in the debug mode: "
                f"call holdfast.init() without local_mode"
            )
        session.begin_from(self.start)
        given: dict[str, Any] = dict(config.get(LOOP_CONFIG) or {})
        with self.backend.joined(rank_of(session, uses_gpu=self.scaling.use_gpu)):
            if _takes_config(self.function):
                self.function({**self.config, **given})
            else:
                self.function()


def rank_of(session: RankSession, *, uses_gpu: bool) -> Rank:
    assignment = session.assignment
    return Rank(
        rank=assignment.rank,
        world_size=assignment.world_size,
        local_rank=assignment.rank,
        local_world_size=assignment.world_size,
        node_rank=0,
        uses_gpu=uses_gpu,
        meet=session.meet,
    )


def check_loop(function: Any) -> None:
    """Raises InvalidConfig for what is no function of a config, or of nothing."""
    if not callable(function):
        raise InvalidConfig(
            f"train_loop_per_worker must be a function of one config dict, or of nothing, not "
            f"{function!r:.100}"
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without one
        return
    possible: tuple[tuple[Any, ...], ...] = ((), ({},))
    for arguments in possible:
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return
    name = getattr(function, "__name__", type(function).__name__)
    raise InvalidConfig(
        f"train_loop_per_worker {name}{signature} must take one argument, the config dict, or none"
    )


def _takes_config(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind({})
    except TypeError:
        return False
    except ValueError:
        return True
    return True
