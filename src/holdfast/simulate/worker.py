"""A simulated worker, and the training that all of them run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.effects import Launch
from holdfast.simulate.curves import Curve, CurveFailed
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


class SimulatedWorker:
    """One attempt of a trial, in its place. `trains` until its function has returned."""

    __slots__ = (
        "attempt",
        "config",
        "has_started",
        "held",
        "index",
        "is_gone",
        "is_new",
        "iteration",
        "place",
        "saved_at",
        "seconds",
        "since_s",
        "state",
        "total_s",
        "trains",
        "trial_id",
    )  # fmt: skip

    def __init__(self, effect: Launch, trial: Trial, place: int, since_s: float) -> None:
        self.trial_id = effect.trial_id
        self.attempt = effect.attempt
        self.index = trial.spec.index
        self.held = effect.allocation.amounts
        self.iteration = trial.iteration
        self.total_s = trial.time_total_s
        self.place = place
        self.saved_at = 0
        self.since_s = since_s
        self.seconds = 0.0
        self.config: dict[str, Any] = {}
        self.state: Any = None
        self.has_started = self.is_new = False
        self.trains = True
        self.is_gone = False


def curve_failed(worker: SimulatedWorker, error: Exception) -> CurveFailed:
    """The error of a simulation whose curve raised `error` for this worker."""
    return CurveFailed(
        f"the curve raised {type(error).__name__} in iteration {worker.iteration + 1} of "
        f"trial {worker.trial_id} with {worker.config!r:.200}: {error}"
    )
