"""The result of a simulation."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.simulate.tally import Incumbent
from holdfast.text.values import duration
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Status, StopReason

_FAILURES = {
    "user": ("iteration raised", "iterations raised"),
    "lost": ("worker died", "workers died"),
    "node": ("node was lost", "nodes were lost"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrial:
    """A trial at the end: `metrics` are those of its last report, `best` is its best value.

    `iteration` is its last iteration, `attempts` the number of its starts.

    `stop_reason` is that of a `Result`; None for one that has not ended.
    """

    trial_id: str
    config: Mapping[str, Any]
    status: Status
    stop_reason: StopReason | None
    iteration: int
    attempts: int
    metrics: Mapping[str, Any] | None
    best: float | None
    error: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """`trials` in the order of their numbers; all durations in simulated seconds.

    `incumbents` has one entry for each report that was better than all before. `busy_s` is the
    time that trials held workers, summed over the workers; `trained_s` is the part of it that went
    into reported iterations. `repeated` counts reports of iterations that their trial had reported
    before, as after a failure. `events` is the number of records in the trace, and `digest` its
    SHA-256. `failures` counts injected failures by kind: "user", "lost", "node". `reason` and
    `message` are those of the run's end.
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
        """Worker-seconds without a trial, or lost with their nodes."""
        return max(0.0, self.workers * self.duration_s - self.busy_s)

    @property
    def best(self) -> SimulatedTrial | None:
        """The trial with the best value; None if there is no value."""
        if not self.incumbents:
            return None
        trial_id = self.incumbents[-1].trial_id
        return next(trial for trial in self.trials if trial.trial_id == trial_id)

    @property
    def best_value(self) -> float | None:
        """The best reported value."""
        return self.incumbents[-1].value if self.incumbents else None

    def best_value_at(self, elapsed_s: float) -> float | None:
        """The best value reported within the first `elapsed_s` seconds."""
        at = bisect_right(self.incumbents, elapsed_s, key=lambda found: found.elapsed_s)
        return self.incumbents[at - 1].value if at else None

    def reached_s(self, value: float) -> float | None:
        """Seconds until a value was as good as this one; None if none was."""
        sign = 1.0 if self.mode == "max" else -1.0
        found = (i.elapsed_s for i in self.incumbents if sign * (i.value - value) >= 0)
        return next(found, None)

    @property
    def stop_reasons(self) -> dict[str, int]:
        """The number of ended trials by their `stop_reason`."""
        found = Counter(trial.stop_reason for trial in self.trials)
        return {reason.value: found[reason] for reason in StopReason if found[reason]}

    def __str__(self) -> str:
        """A few lines: duration, cost and best value."""
        ended = ", ".join(f"{count:,} {word}" for word, count in self.stop_reasons.items())
        if unended := len(self.trials) - sum(self.stop_reasons.values()):
            ended = f"{ended}, {unended:,} did not end".removeprefix(", ")
        again = f", {self.repeated:,} of them repeated iterations" if self.repeated else ""
        lines = [
            f"{len(self.trials):,} trials on {self.workers:,} workers: {ended}",
            f"time          {duration(self.duration_s)}",
            f"worker-hours  {hours(self.busy_s)} used, {hours(self.idle_s)} idle",
            f"reports       {self.reports:,}{again}",
        ]
        if self.failures:
            lines.append(f"faults        {_fault_counts(self.failures)}")
        if self.incumbents:
            last = self.incumbents[-1]
            lines.append(
                f"best          {self.metric} = {last.value:.6g} after {duration(last.elapsed_s)} "
                f"(trial {last.trial_id}, iteration {last.iteration})"
            )
        if self.message:
            lines.append(f"ended         {self.reason}: {self.message}")
        return "\n".join(lines)


def hours(seconds: float) -> str:
    """Worker-hours in three digits."""
    value = seconds / 3600
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _fault_counts(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {_FAILURES[kind][count > 1]}" for kind, count in failures.items())
