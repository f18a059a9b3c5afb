"""A simulation, and what a replay compares, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.experiment.wording import duration
from holdfast.simulate.simulation import Simulation
from holdfast.simulate.tally import Incumbent

if TYPE_CHECKING:
    from holdfast.simulate.replaying import Replay

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


def _mishaps(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {_FAILURES[kind][count > 1]}" for kind, count in failures.items())


def compared(both: Replay) -> str:
    """A table of the run as it was and as it would have been, and what to know of the latter."""
    was, would = both.recorded, both.simulated
    metric = would.metric or "value"
    rows = [("", "as it was", f"under {both.scheduler}")]
    rows.append(("workers", f"{was.workers:,}", f"{would.workers:,}"))
    rows.append(("time to finish", duration(was.duration_s), duration(would.duration_s)))
    rows.append(("worker-hours", hours(was.busy_s), hours(would.busy_s)))
    rows.append(("iterations", f"{was.reports:,}", f"{would.reports:,}"))
    rows.append((f"best {metric}", _best(was.incumbents), _best(would.incumbents)))
    rows.append(("found after", _found(was.incumbents), _found(would.incumbents)))
    if was.incumbents:
        reached = would.reached_s(was.incumbents[-1].value)
        text = "never" if reached is None else duration(reached)
        rows.append(("as good as it was after", _found(was.incumbents), text))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join([*lines, *_reservations(both)])


def figures(both: Replay) -> dict[str, Any]:
    """Both as plain data."""
    was, would = both.recorded, both.simulated
    return {
        "metric": would.metric,
        "mode": would.mode,
        "recorded": {
            "workers": was.workers,
            "duration_s": was.duration_s,
            "busy_s": was.busy_s,
            "reports": was.reports,
            **_best_figures(was.incumbents),
        },
        "simulated": {
            "scheduler": both.scheduler,
            "workers": would.workers,
            "duration_s": would.duration_s,
            "busy_s": would.busy_s,
            "reports": would.reports,
            "endings": would.endings,
            **_best_figures(would.incumbents),
        },
        "cut_short": both.cut_short,
        "approximated": both.approximated,
        "digest": would.digest,
    }


def _best_figures(incumbents: Sequence[Incumbent]) -> dict[str, Any]:
    if not incumbents:
        return {"best": None, "best_after_s": None, "best_trial": None}
    last = incumbents[-1]
    return {"best": last.value, "best_after_s": last.elapsed_s, "best_trial": last.trial_id}


def _best(incumbents: Sequence[Incumbent]) -> str:
    return f"{incumbents[-1].value:.6g}" if incumbents else "-"


def _found(incumbents: Sequence[Incumbent]) -> str:
    return duration(incumbents[-1].elapsed_s) if incumbents else "-"


def _reservations(both: Replay) -> Iterator[str]:
    """What the figures cannot know."""
    if both.cut_short:
        trials = "1 trial" if both.cut_short == 1 else f"{both.cut_short:,} trials"
        yield (
            f"{trials} came to the end of what was recorded, where the training had been stopped "
            f"or had failed: nothing is known beyond"
        )
    if both.approximated:
        yield (
            f"{both.approximated:,} of {both.simulated.reports:,} reports are estimated: their "
            f"configs were not recorded, and follow the nearest that were"
        )
