"""The faults of a simulation, drawn from its seed and from the subject of each fault.

A draw depends on nothing else. So two schedulers that are simulated with one seed meet the same
stragglers and lost nodes, and a trial fails in the same iterations under both.
"""

from __future__ import annotations

import math
from hashlib import blake2b

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig


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
        """Whether an iteration can raise or lose its worker."""
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
