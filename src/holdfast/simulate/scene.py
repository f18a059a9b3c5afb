"""What a simulation plays: learning curves, faults, nodes that the machine knows, and the workers.

A curve is a function of the config, or a training with a state. Faults are drawn from the seed and
from the subject of each fault, and from nothing else: two schedulers that are simulated with one
seed meet the same stragglers and lost nodes, and a trial fails in the same iterations under both.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any, Protocol, runtime_checkable

from holdfast.dataclass import dataclass
from holdfast.experiment.control.proposer import Proposer
from holdfast.experiment.control.user_threads import StopFunction
from holdfast.experiment.worker.metrics import plain_metrics
from holdfast.scheduler.events import Begun, Event, NodeJoined, NodeLeaving, NodeLeft
from holdfast.trial.errors import InvalidConfig, ProcessFailureKind, TuneError
from holdfast.trial.resources import Allocation, Amounts, NodeKind
from holdfast.trial.trial import Trial

# One report: a dict as for `tune.report`, the metric alone, or None at the end of the training.
Report = Mapping[str, Any] | float | None
CurveFunction = Callable[[dict[str, Any], int], Report]
Seconds = float | Callable[..., float]


class CurveFailed(TuneError):
    """The user's curve raised, or did not return a report; the message names the trial."""


@runtime_checkable
class Curve(Protocol):
    """A training with a state, for results that depend on the history, not only on the config.

    A checkpoint is a state: a trial that resumes from one, its own or another's, gets the same
    object. So `step` must return a new state and not change its argument.
    """

    def begin(self, config: dict[str, Any]) -> Any:
        """The state before the first iteration."""
        ...

    def step(self, state: Any, config: dict[str, Any]) -> tuple[Any, Report]:
        """The state after another iteration, and its report; None ends the training."""
        ...


class FunctionCurve:
    """A curve as a function of config and iteration (from 1); its state is the iteration."""

    def __init__(self, function: CurveFunction) -> None:
        self._function = function

    def begin(self, config: dict[str, Any]) -> int:
        return 0

    def step(self, state: int, config: dict[str, Any]) -> tuple[int, Report]:
        return state + 1, self._function(config, state + 1)


def curve_of(given: Curve | CurveFunction) -> Curve:
    """Raises InvalidConfig if `given` is neither a function nor has `begin` and `step`."""
    if isinstance(given, Curve):
        return given
    if callable(given):
        return FunctionCurve(given)
    raise InvalidConfig(
        f"a curve is a function of (config, iteration), or an object with begin(config) and "
        f"step(state, config), not {given!r:.100}"
    )


def metrics_of(report: Mapping[str, Any] | float, metric: str | None) -> dict[str, Any]:
    """A report as plain data. Raises InvalidMetrics, InvalidConfig."""
    if isinstance(report, Mapping):
        return dict(plain_metrics(report))
    if metric is None:
        raise InvalidConfig(
            "a curve that returns a number needs TuneConfig(metric=...), the name of that number"
        )
    return dict(plain_metrics({metric: report}))


def cost_of(seconds: Seconds) -> Callable[[dict[str, Any], int, Mapping[str, float]], float]:
    """Seconds for one iteration, by config, number and the resources that the trial holds.

    A function may take all three, the first two or only the config. Raises InvalidConfig.
    """
    if not callable(seconds):
        known = _checked(seconds)
        return lambda config, iteration, resources: known
    function, count = seconds, _arguments(seconds)
    return lambda *what: _checked(function(*what[:count]))


def _arguments(function: Callable[..., float]) -> int:
    signature = inspect.signature(function)
    for count in (3, 2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise InvalidConfig(
        f"seconds_per_iteration: {function!r} must take (config), (config, iteration) or "
        f"(config, iteration, resources)"
    )


def _checked(seconds: Any) -> float:
    """A number, also one of NumPy, as a float."""
    try:
        number = float(seconds)
    except (TypeError, ValueError):
        raise InvalidConfig(
            f"seconds_per_iteration must be a number of seconds, not {seconds!r:.100}"
        ) from None
    if not 0 < number < math.inf:
        raise InvalidConfig(f"seconds_per_iteration must be above 0, not {number!r}")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The frequency of each fault; none by default.

    `failure_rate`, `crash_rate`: the probability that an iteration raises, or that its process
    dies in it. A `straggler_share` of the workers takes `straggler_factor` times as long.
    Workers live on nodes of `workers_per_node`; a node goes away with all of them after
    `node_life_s` seconds on average (exponentially distributed; None for never) and is back after
    `node_absence_s`. `preempts`: the owner takes such a node back, which counts as a preemption
    and not as a lost worker (see FailureConfig). With `simulate(nodes=...)` it says so `notice_s`
    seconds before.

    Raises InvalidConfig.
    """

    failure_rate: float = 0.0
    crash_rate: float = 0.0
    straggler_share: float = 0.0
    straggler_factor: float = 3.0
    workers_per_node: int = 8
    node_life_s: float | None = None
    node_absence_s: float = 600.0
    preempts: bool = False
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("failure_rate", "crash_rate", "straggler_share"):
            self._require(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        self._require(
            "crash_rate", self.failure_rate + self.crash_rate < 1, "below 1 - failure_rate"
        )
        self._require("straggler_factor", _is_positive(self.straggler_factor), "above 0")
        self._require("workers_per_node", self.workers_per_node >= 1, "1 or more")
        lives = self.node_life_s is None or _is_positive(self.node_life_s)
        self._require("node_life_s", lives, "a number of seconds above 0, or None")
        self._require("node_absence_s", _is_positive(self.node_absence_s), "seconds above 0")
        self._require("notice_s", 0 <= self.notice_s < math.inf, "seconds, 0 or more")

    def _require(self, name: str, condition: bool, allowed: str) -> None:
        if not condition:
            raise InvalidConfig(f"Faults: {name} must be {allowed}, not {getattr(self, name)!r}")

    @property
    def has_bad_iterations(self) -> bool:
        """True if an iteration can raise or lose its worker."""
        return self.failure_rate + self.crash_rate > 0


def _is_positive(number: float) -> bool:
    return 0 < number < math.inf


class Luck:
    """Random numbers in [0, 1) that depend only on the seed and on their purpose."""

    def __init__(self, seed: int) -> None:
        self._seed = f"{seed}".encode()

    def draw(self, *what: object) -> float:
        """The number for this purpose; always the same."""
        text = "/".join(map(str, what)).encode()
        digest = blake2b(text, digest_size=7, key=self._seed[:64]).digest()
        return int.from_bytes(digest, "big") / 2**56

    def wait_s(self, mean_s: float, *what: object) -> float:
        """Seconds until an event that happens once in `mean_s` on average (exponential)."""
        return -mean_s * math.log(1.0 - self.draw(*what))


class Stragglers:
    """The places where workers are slow."""

    def __init__(self, faults: Faults, luck: Luck) -> None:
        self._faults = faults
        self._luck = luck
        self._slowness: dict[int, float] = {}

    def slowness(self, place: int) -> float:
        """The factor by which an iteration takes longer there."""
        faults = self._faults
        if not faults.straggler_share:
            return 1.0
        known = self._slowness.get(place)
        if known is None:
            is_slow = self._luck.draw("straggler", place) < faults.straggler_share
            known = self._slowness[place] = faults.straggler_factor if is_slow else 1.0
        return known


KIND = "simulated"
# More workers than a node has: a place is a node's number, and a worker's number there.
_MOST_PLACES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSpec:
    """So many nodes, each with these resources."""

    count: int
    resources: Amounts

    @property
    def kind(self) -> NodeKind:
        """The offer of these nodes."""
        return NodeKind(name=KIND, resources=self.resources, most=self.count)


class KnownNodes:
    """The machine chooses the node of each worker. A node that is back has a new name."""

    exit_kind: ProcessFailureKind = "lost"  # the machine knows which nodes were taken back

    def __init__(self, spec: NodesSpec, faults: Faults, post: Callable[[Event], None]) -> None:
        self.nodes = spec.count
        self._resources: Mapping[str, float] = spec.resources
        self._notice_s = faults.notice_s if faults.preempts else None
        self._post = post
        self._names = [""] * spec.count
        self._numbers: dict[str, int] = {}
        self._free: list[list[int]] = [[] for _ in range(spec.count)]
        # By node, the places with a bundle there, in the order in which they were taken.
        self._there: list[dict[int, None]] = [{} for _ in range(spec.count)]
        self._nodes_of: dict[int, set[int]] = {}
        self._made = [0] * spec.count
        self._times = [0] * spec.count

    def open(self) -> None:
        """All nodes join."""
        for node in range(self.nodes):
            self.restore(node)

    def take(self, allocation: Allocation) -> int:
        """A place on the node of the first bundle."""
        numbers = {self._numbers[place.node] for place in allocation.places}
        first = self._numbers[allocation.places[0].node]
        free = self._free[first]
        place = heappop(free) if free else first * _MOST_PLACES + self._made[first]
        self._made[first] += place % _MOST_PLACES == self._made[first]
        self._nodes_of[place] = numbers
        for node in numbers:
            self._there[node][place] = None
        return place

    def give_back(self, place: int) -> None:
        """Free the place."""
        for node in self._nodes_of.pop(place):
            del self._there[node][place]
        heappush(self._free[place // _MOST_PLACES], place)

    def name_of(self, place: int) -> str:
        """The name of the place's node."""
        return self._names[place // _MOST_PLACES]

    def announce(self, node: int) -> float:
        """Tell the machine that the node will be taken back, if it is told; in how many
        seconds."""
        if self._notice_s is None:
            return 0.0
        name = self._names[node]
        self._post(NodeLeaving(node=name, seconds=self._notice_s, why="it is taken back"))
        return self._notice_s

    def lose(self, node: int) -> Sequence[int]:
        """Take the node away until `restore`; return the places that are lost with it."""
        name = self._names[node]
        del self._numbers[name]
        self._post(NodeLeft(node=name, cause="was lost in the simulation"))
        return list(self._there[node])

    def restore(self, node: int) -> None:
        """The node joins, as `node-7` and after its first loss as `node-7-2`."""
        self._times[node] += 1
        times = self._times[node]
        name = f"node-{node}" if times == 1 else f"node-{node}-{times}"
        self._names[node] = name
        self._numbers[name] = node
        self._post(NodeJoined(node=name, resources=self._resources, hostname=name, kind=KIND))


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
