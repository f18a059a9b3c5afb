"""Two metrics of all trials, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.experiment.results.drawing.canvas import (
    BEST,
    QUIET,
    axes,
    quiet_frame,
    say_instead,
)
from holdfast.text.values import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Sequence[tuple[float, ...]]


def draw_pareto(front: Points, others: Points, *, x: str, y: str, ax: Axes | None = None) -> Axes:
    """A dot for each trial; those of the front are highlighted and joined by a line."""
    made = axes(ax)
    if not front and not others:
        return say_instead(made, f"no trial has ended with values of {x} and {y}")
    quiet_frame(made)
    if others:
        label = counted(len(others), "other", "others")
        made.scatter(*zip(*others, strict=True), s=16, color=QUIET, label=label)
    if front:
        xs, ys = zip(*sorted(front), strict=True)
        label = f"Pareto front ({len(front)})"
        made.plot(xs, ys, "o-", color=BEST, linewidth=1, markersize=5, label=label)
    made.set_xlabel(x)
    made.set_ylabel(y)
    made.legend(frameon=False, fontsize="small")
    return made
