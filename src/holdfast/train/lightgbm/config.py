"""The network of the ranks of one trial: LightGBM's own sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.assignable import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.train_loop import BackendConfig, Rank
from holdfast.lazy import Framework
from holdfast.train.ports import place_of_each

LIGHTGBM = Framework(title="LightGBM", module="lightgbm", minimum="4")

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
