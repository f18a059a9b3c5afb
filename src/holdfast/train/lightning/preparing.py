"""Checks that a Lightning Trainer trains as one rank of a trial."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.session import running
from holdfast.train.lightning.ranks import AmongRanks
from holdfast.trial.errors import InvalidConfig

Trainer = TypeVar("Trainer")


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Return the trainer after checking that it trains together with the other ranks.

    Raises InvalidConfig for a strategy that would train alone, or start its own processes;
    NotInTrial outside a trial.
    """
    strategy: Any = getattr(trainer, "strategy", None)
    ranks = get_context().get_world_size()
    if strategy is None:
        raise InvalidConfig(f"prepare_trainer() takes a Lightning Trainer, not {trainer!r:.100}")
    if ranks > 1 and not isinstance(strategy, AmongRanks):
        raise _alone(strategy, ranks)
    return trainer


def check_ranks(trainer: Any) -> None:
    """The same check for scripts that did not call `prepare_trainer`.

    Raises InvalidConfig.
    """
    ranks = 1 if running() is None else get_context().get_world_size()
    if ranks not in (1, trainer.world_size):
        raise _alone(trainer.strategy, ranks)


def _alone(strategy: Any, ranks: int) -> InvalidConfig:
    return InvalidConfig(
        f"Trainer(strategy={type(strategy).__name__}) of Lightning's does not know of the "
        f"{ranks} ranks of this trial: give it strategy=DDPStrategy(), FSDPStrategy() or "
        f"DeepSpeedStrategy() of holdfast.train.lightning"
    )
