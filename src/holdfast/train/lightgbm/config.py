"""The network of the ranks of one trial: LightGBM's own sockets, over loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.train_loop import BackendConfig, Rank
from holdfast.lazy import Framework
from holdfast.train.ports import set_aside

LIGHTGBM = Framework(
    title="LightGBM",
    module="lightgbm",
    extra="lightgbm",
    minimum="4",
    distributions=("lightgbm",),
)

# Of this process, which is one rank: where LightGBM finds the others.
_network: dict[str, Any] = {}


@dataclass(frozen=True)
class LightGBMConfig(BackendConfig):
    """How the ranks train one model together: `get_network_params()` goes into LightGBM's own.

    Raises ImportError where LightGBM is not installed, or too old.
    """

    modules = ("lightgbm",)

    def __post_init__(self) -> None:
        LIGHTGBM.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises TuneError where there are no ports."""
        if rank.world_size == 1:
            yield
            return
        kept: list[tuple[int, socket.socket]] = []
        if rank.rank == 0:
            kept = set_aside(rank.world_size)
        ports = json.loads(rank.meet(json.dumps([port for port, _ in kept])))
        _network.update(
            machines=",".join(f"127.0.0.1:{port}" for port in ports),
            num_machines=rank.world_size,
            local_listen_port=ports[rank.rank],
        )
        yield
        for _, name in kept:
            name.close()


def get_network_params() -> dict[str, Any]:
    """What LightGBM's parameters need for the ranks to train one model: where they are.

    Nothing where there is one rank. How they train is the user's to say: `tree_learner`,
    `pre_partition=True` where each rank has rows of its own. LightGBM opens its port once in a
    process: a loop trains one model with it.

    Raises NotInTrial outside of a trial.
    """
    get_context()
    return dict(_network)
