"""How much each parameter matters, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.experiment.results.drawing.canvas import (
    COLOURS,
    QUIET,
    axes,
    quiet_frame,
    say_instead,
)
from holdfast.experiment.results.importance import FEWEST, Importances

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 20
_TITLES = {
    "rank": "share of the variance of the metric's ranks",
    "forest": "loss of R² when permuted (random forest)",
    "fanova": "share of what all explain by themselves (fANOVA)",
}


def draw_importance(found: Importances, ax: Axes | None = None) -> Axes:
    """Horizontal bars, the most important parameter on top."""
    names = list(found.scores)[:_SHOWN]
    made = axes(ax, height=max(2.2, 0.34 * len(names) + 1.1))
    if not names:
        few = f"importance needs {FEWEST} trials that reported {found.metric}, and parameters that"
        return say_instead(made, f"{few} vary:\nthere are {found.trials} such trials")
    scores = [found.scores[name] for name in names]
    spread = [found.spread[name] for name in names] if found.spread else None
    made.barh(names, scores, xerr=spread, color=COLOURS[0], height=0.62, ecolor=QUIET, capsize=2.5)
    made.invert_yaxis()
    quiet_frame(made)
    made.grid(visible=False, axis="y")
    made.set_xlim(left=0)
    made.set_xlabel(_TITLES[found.algorithm])
    made.set_title(
        f"importance for {found.metric} ({found.trials} trials)", loc="left", fontsize="medium"
    )
    return made
