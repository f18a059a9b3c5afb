"""A simulation, and what a replay compares, for people."""

from __future__ import annotations

from holdfast.experiment.wording import duration
from holdfast.simulate.simulation import Simulation

_ENDINGS = {
    "returned": "came to their end",
    "bound": "reached a bound",
    "stopped": "stopped early",
    "error": "failed",
    "": "did not end",
}
_FAILURES = {"user": "iterations raised", "lost": "workers died", "node": "nodes were lost"}


def told(found: Simulation) -> str:
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


def _mishaps(failures: object) -> str:
    assert isinstance(failures, dict)
    return ", ".join(f"{count:,} {_FAILURES[kind]}" for kind, count in failures.items())
