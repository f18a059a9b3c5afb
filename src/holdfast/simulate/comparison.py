"""What a replay found: the run as it was, next to the run as it would have been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.wording import duration
from holdfast.simulate.recording import Recording
from holdfast.simulate.simulation import Simulation, hours
from holdfast.simulate.tally import Incumbent


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What was, and what would have been: `str()` of it is a table of both.

    `cut_short` trials came to the end of what is recorded of them, where they had been stopped or
    had failed: nobody knows how they would have gone on, so they end there. `approximated` reports
    are of configs that were not recorded, or that a trial was given on its way.
    """

    recorded: Recording
    simulated: Simulation
    scheduler: str
    cut_short: int
    approximated: int

    def __str__(self) -> str:
        return _table(self)

    def plain(self) -> dict[str, Any]:
        """The figures of both as plain data; seconds."""
        return _figures(self)


def _table(both: Replay) -> str:
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


def _figures(both: Replay) -> dict[str, Any]:
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
