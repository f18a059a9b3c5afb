"""What a simulation came to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.wording import duration
from holdfast.simulate.tally import Incumbent
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Status

_ENDINGS = {
    "returned": "came to their end",
    "bound": "reached a bound",
    "stopped": "stopped early",
    "error": "failed",
    "": "did not end",
}
_FAILURES = {
    "user": ("iteration raised", "iterations raised"),
    "lost": ("worker died", "workers died"),
    "node": ("node was lost", "nodes were lost"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrial:
    """One trial at the end: `metrics` are its last report's, `best` the best value of the goal.

    `iteration` is how far it came, `attempts` how often it was started.

    `ending` is "returned" (its training function came to its end), "bound" (of
    `RunConfig(stop=...)`), "stopped" (by the scheduler, a stopper or the time budget), "error",
    or "" for one that has not ended.
    """

    trial_id: str
    config: Mapping[str, Any]
    status: Status
    ending: str
    iteration: int
    attempts: int
    metrics: Mapping[str, Any] | None
    best: float | None
    error: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """`trials` in the order of their numbers; all durations in simulated seconds.

    `incumbents`: each time that a report was better than all before. `busy_s` is what workers were
    held by trials, over all of them; of that `trained_s` went into iterations that were reported.
    `repeated` counts reports of iterations that their trial had reported before, as after a
    failure. `events` are the records of the trace, and `digest` is its SHA-256. `failures` counts
    what was injected: "user", "lost", "node". `reason` and `message` are those of the run's end.
    """

    metric: str | None
    mode: str | None
    seed: int
    trials: tuple[SimulatedTrial, ...]
    incumbents: tuple[Incumbent, ...]
    duration_s: float
    workers: int
    busy_s: float
    trained_s: float
    reports: int
    repeated: int
    events: int
    failures: Mapping[str, int]
    warnings: tuple[str, ...]
    reason: str
    message: str
    digest: str

    @property
    def idle_s(self) -> float:
        """Seconds that workers stood idle, or were gone with their nodes."""
        return max(0.0, self.workers * self.duration_s - self.busy_s)

    @property
    def best(self) -> SimulatedTrial | None:
        """The trial of the best value; None where nothing counts as one."""
        if not self.incumbents:
            return None
        trial_id = self.incumbents[-1].trial_id
        return next(trial for trial in self.trials if trial.trial_id == trial_id)

    @property
    def best_value(self) -> float | None:
        """The best value that was reported."""
        return self.incumbents[-1].value if self.incumbents else None

    def best_value_at(self, elapsed_s: float) -> float | None:
        """The best value that was reported within the first so many seconds."""
        at = bisect_right(self.incumbents, elapsed_s, key=lambda found: found.elapsed_s)
        return self.incumbents[at - 1].value if at else None

    def reached_s(self, value: float) -> float | None:
        """Seconds until there was a value as good as this one; None if there never was."""
        sign = 1.0 if self.mode == "max" else -1.0
        found = (i.elapsed_s for i in self.incumbents if sign * (i.value - value) >= 0)
        return next(found, None)

    @property
    def endings(self) -> dict[str, int]:
        """How many trials ended in which way."""
        counts: dict[str, int] = {}
        for trial in self.trials:
            counts[trial.ending] = counts.get(trial.ending, 0) + 1
        return counts

    def __str__(self) -> str:
        return _text(self)


def _text(found: Simulation) -> str:
    """Some lines: how long it took, what it cost, what was found."""
    ended = ", ".join(f"{count:,} {_ENDINGS[how]}" for how, count in found.endings.items())
    lines = [
        f"{len(found.trials):,} trials on {found.workers:,} workers: {ended}",
        f"time          {duration(found.duration_s)}",
        f"worker-hours  {hours(found.busy_s)} used, {hours(found.idle_s)} idle",
        f"reports       {found.reports:,}{_again(found.repeated)}",
    ]
    if found.failures:
        lines.append(f"mishaps       {_mishaps(found.failures)}")
    if found.incumbents:
        last = found.incumbents[-1]
        lines.append(
            f"best          {found.metric} = {last.value:.6g} after {duration(last.elapsed_s)} "
            f"(trial {last.trial_id}, iteration {last.iteration})"
        )
    if found.message:
        lines.append(f"ended         {found.reason}: {found.message}")
    return "\n".join(lines)


def hours(seconds: float) -> str:
    """Worker-hours in three digits."""
    value = seconds / 3600
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _again(repeated: int) -> str:
    return f", {repeated:,} of them of iterations that had to be done again" if repeated else ""


def _mishaps(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {_FAILURES[kind][count > 1]}" for kind, count in failures.items())
