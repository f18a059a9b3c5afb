"""The result of a replay: the recorded run next to the simulated one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.simulate.recording import Recording
from holdfast.simulate.simulation import Simulation, hours
from holdfast.simulate.tally import Incumbent
from holdfast.text.values import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The recorded run and the simulated one; `str()` returns a table of both.

    `cut_short` counts trials that reached the end of their recording, where they had been stopped
    or had failed: their further course is unknown, so they end there. `approximated` counts
    reports of configs that were not recorded, or that a trial got during its training.
    """

    recorded: Recording
    simulated: Simulation
    scheduler: str
    cut_short: int
    approximated: int

    def __str__(self) -> str:
        """A table of the recorded and the simulated run, and the limits of the latter."""
        was, would = self.recorded, self.simulated
        metric = would.metric or "value"
        rows = [("", "as it was", f"under {self.scheduler}")]
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
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        return "\n".join([*lines, *_reservations(self)])

    def plain(self) -> dict[str, Any]:
        """The figures of both as plain data; times are in seconds."""
        was, would = self.recorded, self.simulated
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
                "scheduler": self.scheduler,
                "workers": would.workers,
                "duration_s": would.duration_s,
                "busy_s": would.busy_s,
                "reports": would.reports,
                "stop_reasons": would.stop_reasons,
                **_best_figures(would.incumbents),
            },
            "cut_short": self.cut_short,
            "approximated": self.approximated,
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
    """The limits of the figures."""
    if both.cut_short:
        trials = "1 trial" if both.cut_short == 1 else f"{both.cut_short:,} trials"
        yield (
            f"{trials} reached the end of the recording, where the training had been stopped "
            f"or had failed: their further course is unknown"
        )
    if both.approximated:
        yield (
            f"{both.approximated:,} of {both.simulated.reports:,} reports are estimates: their "
            f"configs were not recorded, and follow the nearest recorded ones"
        )
