"""Learning curves: a metric over the iterations, of one trial or of many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.row_lines import numeric
from holdfast.experiment.results.drawing.canvas import (
    BEST,
    COLOURS,
    FAILED,
    QUIET,
    axes,
    quiet_frame,
    say_instead,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Up to this many curves each have a colour and a legend entry; of more, only the best has.
_FEW = 6
_FEW_POINTS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotCurve:
    """One curve. `has_failed`: its trial ended with an error; `is_best`: it is highlighted."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    has_failed: bool = False
    is_best: bool = False

    @property
    def is_drawable(self) -> bool:
        return any(math.isfinite(y) for y in self.ys)


def points(
    rows: Sequence[Mapping[str, Any]], metric: str, x: str
) -> tuple[list[float], list[float]]:
    """The points of the rows that have both values; a value that is not finite makes a gap."""
    found = [(numeric(row, x), numeric(row, metric)) for row in rows]
    both = [(at, value) for at, value in found if at is not None and value is not None]
    return [at for at, _ in both], [v if math.isfinite(v) else math.nan for _, v in both]


def draw_curves(
    curves: Sequence[PlotCurve], *, metric: str, x: str, ax: Axes | None = None, title: str = ""
) -> Axes:
    """Draw the curves on `ax` or on new axes. With a `title` they are all of one trial."""
    made = axes(ax)
    drawn = [curve for curve in curves if curve.is_drawable]
    if not drawn:
        return say_instead(made, f"no trial has reported {metric}")
    quiet_frame(made)
    few = len(drawn) <= _FEW
    # The best is drawn last, on top.
    for at, curve in enumerate(sorted(drawn, key=lambda curve: curve.is_best)):
        _draw(made, curve, COLOURS[at % len(COLOURS)] if few else QUIET, few=few)
    _mark_failures(made, drawn, counts=not title)
    made.set_xlabel(x)
    made.set_ylabel(metric)
    made.set_title(title, loc="left", fontsize="medium")
    _whole_numbers(made, drawn)
    if not few:
        made.plot([], [], color=QUIET, label=f"{len(drawn)} trials")
    if len(drawn) > 1 or drawn[0].has_failed:
        made.legend(frameon=False, fontsize="small")
    return made


def _draw(ax: Axes, curve: PlotCurve, colour: str, *, few: bool) -> None:
    dots = "o" if len(curve.xs) <= _FEW_POINTS and (few or curve.is_best) else ""
    # A point between two gaps has no line through it.
    dots = dots or ("." if len(curve.xs) == 1 else "")
    ax.plot(
        curve.xs,
        curve.ys,
        color=BEST if curve.is_best and not few else colour,
        linewidth=2.2 if curve.is_best else 1.3 if few else 0.8,
        alpha=1.0 if few or curve.is_best else 0.55,
        marker=dots,
        markersize=3.5,
        label=f"{curve.label}{' (best)' * curve.is_best}" if few or curve.is_best else None,
        zorder=3 if curve.is_best else 2,
    )


def _mark_failures(ax: Axes, curves: Sequence[PlotCurve], *, counts: bool) -> None:
    ends = [_last(curve) for curve in curves if curve.has_failed]
    if ends:
        ax.scatter(
            [x for x, _ in ends],
            [y for _, y in ends],
            marker="x",
            s=42,
            linewidths=1.6,
            color=FAILED,
            label=f"failed ({len(ends)})" if counts else "failed",
            zorder=4,
        )


def _last(curve: PlotCurve) -> tuple[float, float]:
    """The last finite point of the curve."""
    both = zip(curve.xs, curve.ys, strict=True)
    return [(x, y) for x, y in both if math.isfinite(y)][-1]


def _whole_numbers(ax: Axes, curves: Sequence[PlotCurve]) -> None:
    """Show only whole numbers on the axis if it has iterations."""
    if all(x == int(x) for curve in curves for x in curve.xs):
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
