"""A simulated worker, the training that all of them run, and what surrounds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.control.proposing.proposer import Proposer
from holdfast.experiment.control.stopper_thread import StopFunction
from holdfast.scheduler.events import Begun
from holdfast.simulate.curves import Curve, CurveFailed
from holdfast.simulate.faults import Faults
from holdfast.simulate.known_nodes import NodesSpec
from holdfast.trial.trial import Trial

Cost = Callable[[dict[str, Any], int, Mapping[str, float]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training of every worker: the curve, the cost of an iteration, the checkpoints.

    `checkpoint_every`: iterations, 0 for never. `saves_when_told`: also when the scheduler asks
    for it. `iterations`: how many the training function makes before it returns; None for no
    limit.
    """

    curve: Curve
    cost: Cost
    checkpoint_every: int
    saves_when_told: bool
    metric: str | None
    iterations: int | None = None
    start_s: float = 0.0
    stop_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The surroundings of the machine: the source of trials, their training, the `places`; with
    `nodes`, the machine knows where they are.

    `config_of` returns the config that the curve gets. A checkpoint is committed `commit_s`
    seconds after its report.
    """

    begun: Begun
    proposer: Proposer
    training: Training
    config_of: Callable[[Trial], dict[str, Any]]
    places: int
    faults: Faults
    nodes: NodesSpec | None = None
    stopper: StopFunction | None = None
    commit_s: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedWorker:
    """One attempt of a trial, in its place. `trains` until its function has returned."""

    trial_id: str
    attempt: int
    index: int
    held: Mapping[str, float]
    iteration: int
    total_s: float
    place: int
    since_s: float
    saved_at: int = 0
    seconds: float = 0.0
    config: dict[str, Any] = field(default_factory=dict)
    state: Any = None
    has_started: bool = False
    is_new: bool = False
    lacks_origin: bool = False
    trains: bool = True
    is_gone: bool = False


def curve_failed(worker: SimulatedWorker, error: Exception) -> CurveFailed:
    """The error of a simulation whose curve raised `error` for this worker."""
    return CurveFailed(
        f"the curve raised {type(error).__name__} in iteration {worker.iteration + 1} of "
        f"trial {worker.trial_id} with {worker.config!r:.200}: {error}"
    )
