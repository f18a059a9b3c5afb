"""Parallel coordinates: each trial is a line through its parameters to its metric.

A. Inselberg, "The plane with parallel coordinates", The Visual Computer 1 (1985), 69-91.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.results.drawing.canvas import (
    BEST,
    QUIET,
    TEXT,
    axes,
    format_label,
    say_instead,
)
from holdfast.plain_numbers import is_number
from holdfast.text.values import short_headers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# If the largest value of a positive parameter is this many times its smallest, its axis is
# logarithmic.
_LOG_SPAN = 50.0
_TICKS = 5
_FEW = 8
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
    if 1 < len(finite) <= min(_FEW, len(known) // 2) and not is_metric:
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
    _frame(made, scales, [*short_headers(names, _NAME_CHARS), metric])
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


def _frame(ax: Axes, scales: Sequence[Scale], names: Sequence[str]) -> None:
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
