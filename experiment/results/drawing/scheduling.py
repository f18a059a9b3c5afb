"""Pictures of what a scheduler decided: the rungs with their trials, and a population."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.scheduler_facts import RungCount
from holdfast.experiment.results.drawing.canvas import (
    BEST,
    COLOURS,
    QUIET,
    TEXT,
    axes,
    quiet_frame,
)
from holdfast.experiment.results.drawing.curves import PlotCurve, draw_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPREAD = 0.64
_MOST_LABELS = 12
_LOOKS = {
    True: ("continued", COLOURS[0], "o"),
    False: ("stopped", BEST, "x"),
    None: ("waits, or ended there", COLOURS[2], "D"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RungPoint:
    """A trial at a rung, number `place` in the list of rungs: its value, and whether it was
    promoted; None if neither that nor stopped. `at` orders the trials."""

    place: int
    value: float
    promoted: bool | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A takeover of trial `trial_id` in a picture: from a point of the source to the first point
    of the trial after it; with a text of what changed."""

    trial_id: str
    from_point: tuple[float, float] | None
    to_point: tuple[float, float]
    text: str


def draw_rungs(
    rungs: Sequence[RungCount],
    points: Sequence[RungPoint],
    *,
    metric: str,
    title: str,
    ax: Axes | None,
) -> Axes:
    """A column for each rung. If the trials have values, a mark for each in the order of their
    arrival, and a line at the cutoff; else bars of how many continued."""
    made = axes(ax)
    quiet_frame(made)
    made.grid(visible=False, axis="x")
    places = range(len(rungs))
    if points:
        _draw_points(made, points)
        made.set_ylabel(metric)
        for at, rung in enumerate(rungs):
            if rung.cutoff is not None:
                label = "newest cutoff" if at == 0 else None
                made.plot(
                    [at - 0.4, at + 0.4], [rung.cutoff] * 2, color=TEXT, linewidth=1, label=label
                )
    else:
        promoted = [rung.promoted for rung in rungs]
        others = [rung.reached - rung.promoted for rung in rungs]
        made.bar(places, promoted, color=COLOURS[0], width=0.6, label="continued")
        made.bar(places, others, bottom=promoted, color=QUIET, width=0.6, label="did not")
        made.set_ylabel("trials")
    several = len({rung.bracket for rung in rungs}) > 1
    names = [_name(rung, with_bracket=several) for rung in rungs]
    made.set_xticks(list(places), names)
    made.set_xlabel("rung, and how many of the trials that reached it were promoted")
    made.set_title(title, loc="left", fontsize="medium")
    made.legend(frameon=False, fontsize="small")
    return made


def _name(rung: RungCount, *, with_bracket: bool) -> str:
    bracket = f"\nbracket {rung.bracket}" if with_bracket else ""
    decides = rung.promoted or rung.stopped
    count = f"{rung.promoted} of {rung.reached}" if decides else f"{rung.reached} reached it"
    return f"{rung.milestone:g}\n{count}{bracket}"


def _draw_points(ax: Axes, points: Sequence[RungPoint]) -> None:
    """Marks side by side, in the order in which the trials arrived at the rung."""
    xs: dict[int, float] = {}
    for place in {point.place for point in points}:
        there = sorted(
            (point for point in points if point.place == place), key=lambda point: point.at
        )
        for index, point in enumerate(there):
            share = index / (len(there) - 1) - 0.5 if len(there) > 1 else 0.0
            xs[id(point)] = place + _SPREAD * share
    for promoted, (label, colour, marker) in _LOOKS.items():
        chosen = [point for point in points if point.promoted is promoted]
        if chosen:
            ax.scatter(
                [xs[id(point)] for point in chosen],
                [point.value for point in chosen],
                color=colour,
                marker=marker,
                s=26,
                linewidths=1.4,
                label=label,
                zorder=3,
            )


def draw_population(
    curves: Mapping[str, PlotCurve],
    handovers: Sequence[Handover],
    *,
    metric: str,
    x: str,
    ax: Axes | None,
) -> Axes:
    """The curve of each member, broken where it took over another.

    A dotted line leads from the source of each takeover to where the member continues, with what
    changed in its config if there are only a few.
    """
    shown = [
        broken(curve, [one.to_point[0] for one in handovers if one.trial_id == trial_id])
        for trial_id, curve in curves.items()
    ]
    made = draw_curves(shown, metric=metric, x=x, ax=ax)
    for one in handovers:
        if one.from_point is not None:
            made.plot(
                *zip(one.from_point, one.to_point, strict=True),
                color=TEXT,
                linewidth=0.9,
                linestyle=":",
                zorder=4,
            )
    if handovers:
        made.scatter(
            [one.to_point[0] for one in handovers],
            [one.to_point[1] for one in handovers],
            marker="v",
            s=34,
            color=TEXT,
            label=f"takeovers ({len(handovers)})",
            zorder=5,
        )
        made.legend(frameon=False, fontsize="small")
    if len(handovers) <= _MOST_LABELS:
        for one in handovers:
            made.annotate(
                one.text,
                one.to_point,
                xytext=(4, 4),
                textcoords="offset points",
                fontsize="x-small",
                color=TEXT,
            )
    return made


def at_or_before(curve: PlotCurve, x: float) -> tuple[float, float] | None:
    """The last finite point of the curve up to `x`."""
    known = [
        (at, value)
        for at, value in zip(curve.xs, curve.ys, strict=True)
        if at <= x and math.isfinite(value)
    ]
    return known[-1] if known else None


def first_after(curve: PlotCurve, x: float) -> tuple[float, float] | None:
    """The first finite point of the curve after `x`."""
    both = zip(curve.xs, curve.ys, strict=True)
    return next(((at, v) for at, v in both if at > x and math.isfinite(v)), None)


def handover_of(
    curves: Mapping[str, PlotCurve], trial_id: str, source: str, iteration: float, text: str
) -> Handover | None:
    """The takeover in the curves; None if the trial has no point after it."""
    to_point = first_after(curves[trial_id], iteration)
    if to_point is None:
        return None
    from_point = at_or_before(curves[source], iteration) if source in curves else None
    return Handover(trial_id=trial_id, from_point=from_point, to_point=to_point, text=text)


def broken(curve: PlotCurve, before: Sequence[float]) -> PlotCurve:
    """The curve with a gap before each of these places."""
    xs, ys = list[float](), list[float]()
    for at, value in zip(curve.xs, curve.ys, strict=True):
        if at in before:
            xs.append(at)
            ys.append(math.nan)
        xs.append(at)
        ys.append(value)
    return replace(curve, xs=xs, ys=ys)
