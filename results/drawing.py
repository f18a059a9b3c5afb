"""Pictures of results: learning curves (also as text), parallel coordinates, the Pareto front,
rungs and populations. Draws with matplotlib, which is imported on use.

A. Inselberg, "The plane with parallel coordinates", The Visual Computer 1 (1985), 69-91.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.trial_folder import Row, numeric
from holdfast.experiment.progress.scheduler_facts import RungCount
from holdfast.experiment.records.rows import AUTOMATIC
from holdfast.lazy import MATPLOTLIB
from holdfast.plain_numbers import is_number
from holdfast.results.ranking import reported_names
from holdfast.syncer.files.durable import new_file_for
from holdfast.text.values import counted, format_value, short_headers
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.trial import RungVisit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Okabe and Ito's colours, which colour-blind people can distinguish, also in print.
# https://jfly.uni-koeln.de/color/
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
BEST = COLOURS[1]
FAILED = "#B2182B"
QUIET = "#9AA5B1"
GRID = "#E3E6EA"
TEXT = "#30363D"


class PlotsMissing(TuneError, ImportError):
    """A picture was requested, but matplotlib is not installed."""


def axes(given: Axes | None, *, width: float = 6.4, height: float = 4.0) -> Axes:
    """The axes to draw on: those `given`, or new ones of this size in inches.

    Raises PlotsMissing, saying how to install it.
    """
    if given is not None:
        return given
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise PlotsMissing(MATPLOTLIB.missing("a picture", error)) from error
    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def quiet_frame(ax: Axes) -> None:
    """Remove the box around the axes and draw a faint grid behind."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(QUIET)
    ax.tick_params(colors=TEXT)
    ax.grid(visible=True, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)


def say_instead(ax: Axes, text: str) -> Axes:
    """Show a text instead of a picture: the reason why there is nothing to draw."""
    ax.set_axis_off()
    ax.text(
        0.5, 0.5, text, ha="center", va="center", color=TEXT, transform=ax.transAxes, wrap=True
    )
    return ax


def format_label(value: object) -> str:
    """A value for an axis or a legend: from a million on, integers have an exponent."""
    is_large = type(value) is int and abs(value) >= 10**6
    return f"{value:.4g}" if is_large else format_value(value, 18)


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
    def finite(self) -> list[tuple[float, float]]:
        """Its points, without gaps."""
        both = zip(self.xs, self.ys, strict=True)
        return [(x, y) for x, y in both if math.isfinite(x) and math.isfinite(y)]

    @property
    def is_drawable(self) -> bool:
        return bool(self.finite)


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
    ends = [curve.finite[-1] for curve in curves if curve.has_failed]
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


def _whole_numbers(ax: Axes, curves: Sequence[PlotCurve]) -> None:
    """Show only whole numbers on the axis if it has iterations."""
    if all(x == int(x) for curve in curves for x in curve.xs):
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


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


FORMATS = ("png", "svg", "pdf")
_DPI = 150


def check_picture(path: str) -> str:
    """The format of a picture, from the ending of its name. Raises InvalidConfig, also if there is
    no such folder."""
    form = os.path.splitext(path)[1].removeprefix(".").lower()
    if form not in FORMATS:
        raise InvalidConfig(f"{path} does not end with .png, .svg or .pdf")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InvalidConfig(f"cannot write {path}: there is no directory {folder}")
    return form


def save_picture(axes: Axes, path: str) -> None:
    """Write the figure of these axes, replacing the file. Raises InvalidConfig, OSError."""
    from matplotlib import pyplot

    form, figure = check_picture(path), axes.figure
    try:
        with new_file_for(path) as file:
            figure.savefig(file, format=form, dpi=_DPI)
    finally:
        pyplot.close(figure)


# If the largest value of a positive parameter is this many times its smallest, its axis is
# logarithmic.
_LOG_SPAN = 50.0
_TICKS = 5
_FEW_VALUES = 8
_MOST_CATEGORIES = 12
_NAME_CHARS = 18
# Where a line passes the axis of a parameter that its trial lacks.
_NOT_SET = -0.13
# The colours of the metric's axis: half their width, and their number.
_STRIP = 0.035
_STRIP_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A trial: its parameters by name, and its metric, None if it is missing or not finite."""

    params: Mapping[str, Any]
    value: float | None
    is_best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One axis: the `positions` of the values, from 0 to 1, and the labels at its `ticks`.

    The position is NaN if a trial lacks the parameter: its line passes below the axis.
    """

    positions: Sequence[float]
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False


def scale_of(values: Sequence[Any], *, is_metric: bool = False) -> Scale:
    """A linear or logarithmic axis for numbers; equal steps for other values, and for a few
    numbers that recur."""
    known = [value for value in values if value is not None]
    if not known or not all(is_number(value) for value in known):
        return _categorical(values)
    numbers = [math.nan if v is None or not math.isfinite(v) else float(v) for v in values]
    finite = sorted({number for number in numbers if math.isfinite(number)})
    if 1 < len(finite) <= min(_FEW_VALUES, len(known) // 2) and not is_metric:
        return _stepped(numbers, finite)
    return _numeric(numbers, finite)


def _stepped(numbers: Sequence[float], finite: Sequence[float]) -> Scale:
    place = {number: at / (len(finite) - 1) for at, number in enumerate(finite)}
    ticks = [(place[number], format_label(_whole(number))) for number in finite]
    return Scale(positions=[place.get(number, math.nan) for number in numbers], ticks=ticks)


def _numeric(numbers: Sequence[float], finite: Sequence[float]) -> Scale:
    if not finite:
        return Scale(positions=numbers, ticks=())
    low, high = finite[0], finite[-1]
    is_log = low > 0 and high / low >= _LOG_SPAN
    if low == high:
        ticks = [(0.5, format_label(_whole(low)))]
        return Scale(positions=[0.5 if math.isfinite(n) else n for n in numbers], ticks=ticks)
    to = math.log if is_log else float
    start, span = to(low), to(high) - to(low)
    shown = _decades(low, high) if is_log else _round(low, high)
    return Scale(
        positions=[(to(n) - start) / span if math.isfinite(n) else n for n in numbers],
        ticks=[((to(tick) - start) / span, format_label(_whole(tick))) for tick in shown],
        is_log=is_log,
    )


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) and abs(number) < 1e15 else number


def _decades(low: float, high: float) -> list[float]:
    """The powers of ten between the ends, or some of them if there are many."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1, 1 + (last - first) // _TICKS)]


def _round(low: float, high: float) -> list[float]:
    """Round numbers between the ends: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [at * step for at in range(first, last + 1)]


def _categorical(values: Sequence[Any]) -> Scale:
    """An axis with equal steps, sorted by text; numbers among the values are sorted as numbers."""
    names = sorted({str(value) for value in values if value is not None}, key=_natural)
    last = max(1, len(names) - 1)
    place = {name: (at / last if len(names) > 1 else 0.5) for at, name in enumerate(names)}
    every = -(-len(names) // _MOST_CATEGORIES) if names else 1
    return Scale(
        positions=[math.nan if value is None else place[str(value)] for value in values],
        ticks=[(place[name], format_label(name)) for name in names[::every]],
    )


def _natural(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def draw_coordinates(
    lines: Sequence[Line], names: Sequence[str], *, metric: str, mode: str, ax: Axes | None = None
) -> Axes:
    """Draw the lines on `ax` or on new axes, coloured by the metric, the better ones on top.

    A line passes below the axis of a parameter that its trial lacks.
    """
    made = axes(ax, width=max(6.4, 1.5 * (len(names) + 1)), height=4.2)
    if not lines or not names:
        return say_instead(made, "no trial to draw" if not lines else "no parameter is varied")
    values = [line.value for line in lines]
    scales = [scale_of([line.params.get(name) for line in lines]) for name in names]
    lacking = [any(math.isnan(at) for at in scale.positions) for scale in scales]
    scales.append(scale_of(values, is_metric=True))
    colours = _colours(values, mode)
    order = sorted(range(len(lines)), key=lambda at: _depth(lines[at], mode))
    for at in order:
        *set_at, value_at = (scale.positions[at] for scale in scales)
        ys = [_NOT_SET if math.isnan(y) else y for y in set_at]
        _draw_line(made, lines[at], [*ys, value_at], colours[at])
    _draw_axes(made, scales, [*short_headers(names, _NAME_CHARS), metric])
    _show_not_set(made, lacking)
    if scales[-1].ticks:
        _show_colours(made, len(names), mode)
    without = sum(value is None for value in values)
    if without:
        made.plot([], [], color=QUIET, linestyle=":", label=f"without {metric} ({without})")
    if without or len(lines) > 1:
        made.legend(
            frameon=False,
            fontsize="small",
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
        )
    return made


def _depth(line: Line, mode: str) -> tuple[bool, float]:
    """The drawing order: worse lines first, and first of all those without a value."""
    if line.value is None:
        return False, 0.0
    return True, line.value if mode == "max" else -line.value


def _colours(values: Sequence[float | None], mode: str) -> list[Any]:
    """The colour of each line: dark is good. The last axis shows which colour is which value."""
    places = scale_of(values, is_metric=True).positions
    return [QUIET if math.isnan(place) else _colour(place, mode) for place in places]


def _colour(place: float, mode: str) -> Any:
    """The colour at a place of the metric's axis."""
    from matplotlib import colormaps

    good = place if mode == "min" else 1 - place
    # The brightest of the palette are hard to see on white.
    return colormaps["viridis"](0.88 * good)


def _show_colours(ax: Axes, at: int, mode: str) -> None:
    """The colours along the metric's axis, which has the values."""
    from matplotlib.colors import ListedColormap

    steps = [step / _STRIP_STEPS for step in range(_STRIP_STEPS + 1)]
    colours = ListedColormap([_colour(step, mode) for step in steps[:-1]])
    ax.pcolormesh(
        [at - _STRIP, at + _STRIP],
        steps,
        [[step] for step in range(_STRIP_STEPS)],
        cmap=colours,
        zorder=2.5,
    )


def _show_not_set(ax: Axes, lacking: Sequence[bool]) -> None:
    """A place below each axis that a trial lacks: its line passes there."""
    for at in (at for at, is_lacking in enumerate(lacking) if is_lacking):
        ax.plot([at, at], [_NOT_SET, 0], color=QUIET, linewidth=0.9, linestyle=":", zorder=1)
        ax.annotate(
            "not set",
            (at, _NOT_SET),
            xytext=(0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize="x-small",
            color=TEXT,
        )


def _draw_line(ax: Axes, line: Line, ys: Sequence[float], colour: Any) -> None:
    ax.plot(
        range(len(ys)),
        ys,
        color=BEST if line.is_best else colour,
        linewidth=2.6 if line.is_best else 1.1,
        linestyle=":" if line.value is None else "-",
        alpha=1.0 if line.is_best else 0.75,
        marker="o" if line.is_best else "",
        markersize=5,
        label="best" if line.is_best else None,
        zorder=3 if line.is_best else 2,
    )


def _draw_axes(ax: Axes, scales: Sequence[Scale], names: Sequence[str]) -> None:
    for at, (scale, name) in enumerate(zip(scales, names, strict=True)):
        ax.plot([at, at], [0, 1], color=TEXT, linewidth=0.9, zorder=1)
        for y, text in scale.ticks:
            ax.annotate(
                text,
                (at, y),
                xytext=(8 if at == len(scales) - 1 else 4, 0),
                textcoords="offset points",
                va="center",
                fontsize="x-small",
                color=TEXT,
                zorder=5,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
            )
        label = f"{name}\n(log)" if scale.is_log else name
        ax.text(at, 1.04, label, ha="center", va="bottom", fontsize="small", color=TEXT)
    ax.set_xlim(-0.25, len(scales) - 1 + 0.35)
    ax.set_ylim(_NOT_SET - 0.09, 1.16)
    ax.set_axis_off()


_SPREAD = 0.64
_MOST_LABELS = 12
_LOOKS = {
    True: ("continued", COLOURS[0], "o"),
    False: ("stopped", BEST, "x"),
    None: ("waits, or ended there", COLOURS[2], "D"),
}


# A visit of a trial that has a value, and the number of its rung in the list of rungs.
Judged = tuple[int, RungVisit]


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
    judged: Sequence[Judged],
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
    if judged:
        _draw_judged(made, judged)
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


def _draw_judged(ax: Axes, judged: Sequence[Judged]) -> None:
    """Marks side by side, in the order in which the trials arrived at the rung."""
    marks: dict[bool | None, list[tuple[float, float | None]]] = {one: [] for one in _LOOKS}
    for place, there in groupby(sorted(judged, key=_arrival), key=lambda one: one[0]):
        visits = [visit for _, visit in there]
        for index, visit in enumerate(visits):
            share = index / (len(visits) - 1) - 0.5 if len(visits) > 1 else 0.0
            marks[visit.promoted].append((place + _SPREAD * share, visit.value))
    for promoted, (label, colour, marker) in _LOOKS.items():
        if chosen := marks[promoted]:
            ax.scatter(
                *zip(*chosen, strict=True),
                color=colour,
                marker=marker,
                s=26,
                linewidths=1.4,
                label=label,
                zorder=3,
            )


def _arrival(one: Judged) -> tuple[int, float]:
    place, visit = one
    return place, visit.at


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


def handover_of(
    curves: Mapping[str, PlotCurve], trial_id: str, source: str, iteration: float, text: str
) -> Handover | None:
    """The takeover in the curves; None if the trial has no point after it."""
    after = [point for point in curves[trial_id].finite if point[0] > iteration]
    if not after:
        return None
    known = curves[source].finite if source in curves else ()
    before = [point for point in known if point[0] <= iteration]
    from_point = before[-1] if before else None
    return Handover(trial_id=trial_id, from_point=from_point, to_point=after[0], text=text)


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


MOST_CURVES = len(ascii_lowercase)
_SEVERAL = "*"  # where curves meet
# From this ratio on, positive values have a logarithmic axis.
_WIDE = 100.0


def text_curves(
    curves: Sequence[PlotCurve], *, metric: str, x: str, width: int = 78, height: int = 14
) -> list[str]:
    """A plot of the curves, `width` columns wide, with its axes; empty without values.

    Takes at most `MOST_CURVES` curves. Values that are not finite are left out.
    """
    points = [curve.finite for curve in curves]
    xs = [at for one in points for at, _ in one]
    ys = [value for one in points for _, value in one]
    if not xs:
        return []
    is_log = min(ys) > 0 and max(ys) / min(ys) > _WIDE
    scale = math.log10 if is_log else float
    ends = _rounded(max(ys)), _rounded(min(ys))
    margin = max(map(len, ends))
    columns, low, high = max(10, width - margin - 2), scale(min(ys)), scale(max(ys))
    grid = [[" "] * columns for _ in range(height)]
    for letter, curve in zip(ascii_lowercase, points, strict=False):
        last: int | None = None
        for column, value in _across(curve, min(xs), max(xs), columns):
            row = _step(scale(value), high, low, height)
            for at in _between(last, row):
                there = grid[at][column]
                grid[at][column] = letter if there in (" ", letter) else _SEVERAL
            last = row
    labels = [ends[0], *[""] * (height - 2), ends[1]]
    lines = [f"{metric}{' (logarithmic)' if is_log else ''}"]
    lines += [f"{text:>{margin}} |{''.join(row)}" for text, row in zip(labels, grid, strict=True)]
    first, final = _rounded(min(xs)), _rounded(max(xs))
    middle = x.center(max(0, columns - len(first) - len(final)))
    return [
        *(line.rstrip() for line in lines),
        f"{'':{margin}} +{'-' * columns}",
        f"{'':{margin}}  {first}{middle}{final}",
    ]


def letters_of(curves: Sequence[PlotCurve]) -> list[str]:
    """The letter of each curve; "" for one without a value."""
    pairs = zip(ascii_lowercase, curves, strict=False)
    return [letter if curve.is_drawable else "" for letter, curve in pairs]


def _across(
    curve: Sequence[tuple[float, float]], first: float, last: float, columns: int
) -> list[tuple[int, float]]:
    """The value in each column that the curve crosses; between two points, on their line."""
    at = [(_step(x, first, last, columns), y) for x, y in sorted(curve)]
    found: dict[int, float] = {}
    for (left, low), (right, high) in pairwise(at):
        for column in range(left, right + 1):
            part = (column - left) / max(1, right - left)
            found[column] = low + part * (high - low)
    return sorted((found or dict(at)).items())


def _between(last: int | None, row: int) -> range:
    """The rows from the one after `last` to `row`, so that a steep curve has no holes."""
    if last is None or last == row:
        return range(row, row + 1)
    return range(last + 1, row + 1) if last < row else range(row, last)


def _step(value: float, first: float, last: float, count: int) -> int:
    """The position of a value among `count` equal steps from `first` to `last`."""
    if first == last:
        return 0
    return min(count - 1, max(0, round((value - first) / (last - first) * (count - 1))))


def _rounded(value: float) -> str:
    return format_value(int(value) if value == int(value) else value, 10)


_PANELS = 4


class _OneTrial(Protocol):
    """The parts of a Result that its pictures need."""

    @property
    def metrics(self) -> dict[str, Any] | None: ...
    @property
    def error(self) -> Exception | None: ...
    def rows(self) -> list[Row]: ...


class ResultPlots:
    """Pictures of one trial."""

    def __init__(self, result: _OneTrial) -> None:
        self._result = result

    def learning_curves(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        x: str = "training_iteration",
        ax: Axes | None = None,
    ) -> Axes:
        """The `metrics` (one name, or several) over `x`; by default the trial's first four.

        Raises PlotsMissing without matplotlib (`pip install matplotlib`).
        """
        rows = self._result.rows()
        names = [metrics] if isinstance(metrics, str) else list(metrics or ())
        if not names:
            found = [name for name in reported_names(rows) if name not in AUTOMATIC]
            names = [name for name in found if points(rows, name, x)[0]][:_PANELS]
        curves = []
        for name in names:
            xs, ys = points(rows, name, x)
            curves.append(
                PlotCurve(label=name, xs=xs, ys=ys, has_failed=self._result.error is not None)
            )
        title = str((self._result.metrics or {}).get("experiment_tag") or "one trial")
        shown = names[0] if len(names) == 1 else "value" if names else "a number"
        return draw_curves(curves, metric=shown, x=x, ax=ax, title=title)
