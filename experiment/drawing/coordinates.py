"""Parallel coordinates: each trial a line through its parameters to its metric.

A. Inselberg, "The plane with parallel coordinates", The Visual Computer 1 (1985), 69-91.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.experiment.drawing.canvas import QUIET, TEXT, axes, say_instead, told
from holdfast.experiment.headers import short_headers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A parameter above 0 that spans so many times its smallest value stands on a logarithmic axis.
_LOG_SPAN = 50.0
_TICKS = 5
_MOST_CATEGORIES = 12
_NAME_CHARS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A trial: its parameters by name, and its metric, None where it has no finite one."""

    params: Mapping[str, Any]
    value: float | None
    is_best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One axis: `at` gives where on it, from 0 to 1, a value stands; `ticks` what to write where.

    NaN is where a trial has no such parameter.
    """

    positions: Sequence[float]
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False


def scale_of(values: Sequence[Any], *, is_metric: bool = False) -> Scale:
    """Numbers along a linear or logarithmic axis, other values one above the other."""
    known = [value for value in values if value is not None]
    if known and all(_is_number(value) for value in known):
        numbers = [math.nan if v is None or not math.isfinite(v) else float(v) for v in values]
        return _numeric(numbers, few=not is_metric)
    return _categorical(values)


def _numeric(numbers: Sequence[float], *, few: bool) -> Scale:
    finite = sorted({number for number in numbers if math.isfinite(number)})
    if not finite:
        return Scale(positions=numbers, ticks=())
    low, high = finite[0], finite[-1]
    is_log = low > 0 and high / low >= _LOG_SPAN
    if low == high:
        return Scale(positions=[_flat(n) for n in numbers], ticks=[(0.5, told(low))])
    to = math.log if is_log else float
    start, span = to(low), to(high) - to(low)
    shown = finite if few and len(finite) <= _TICKS else _spread(low, high, is_log=is_log)
    return Scale(
        positions=[(to(n) - start) / span if math.isfinite(n) else n for n in numbers],
        ticks=[((to(tick) - start) / span, told(tick)) for tick in shown],
        is_log=is_log,
    )


def _flat(number: float) -> float:
    return 0.5 if math.isfinite(number) else number


def _spread(low: float, high: float, *, is_log: bool) -> list[float]:
    """From end to end, in equal steps of the axis."""
    steps = [step / (_TICKS - 1) for step in range(_TICKS)]
    if is_log:
        return [low * (high / low) ** step for step in steps]
    return [low + (high - low) * step for step in steps]


def _categorical(values: Sequence[Any]) -> Scale:
    """By their text, in order; the true numbers among them in the order of numbers."""
    names = sorted({str(value) for value in values if value is not None}, key=_natural)
    last = max(1, len(names) - 1)
    place = {name: (at / last if len(names) > 1 else 0.5) for at, name in enumerate(names)}
    every = -(-len(names) // _MOST_CATEGORIES) if names else 1
    return Scale(
        positions=[math.nan if value is None else place[str(value)] for value in values],
        ticks=[(place[name], told(name)) for name in names[::every]],
    )


def _natural(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def draw_coordinates(
    lines: Sequence[Line], names: Sequence[str], *, metric: str, mode: str, ax: Axes | None = None
) -> Axes:
    """The lines on `ax` or on new axes, coloured by the metric, the better ones on top."""
    made = axes(ax, width=max(6.4, 1.5 * (len(names) + 1)), height=4.2)
    if not lines or not names:
        return say_instead(made, "no trial to draw" if not lines else "no parameter is varied")
    values = [line.value for line in lines]
    scales = [scale_of([line.params.get(name) for line in lines]) for name in names]
    scales.append(scale_of(values, is_metric=True))
    colours, colour_map = _colours(made, values, mode, metric)
    order = sorted(range(len(lines)), key=lambda at: _depth(lines[at], mode))
    for at in order:
        _draw_line(made, lines[at], [scale.positions[at] for scale in scales], colours[at])
    _frame(made, scales, [*short_headers(names, _NAME_CHARS), metric])
    without = sum(value is None for value in values)
    if without:
        made.plot([], [], color=QUIET, linestyle=":", label=f"without {metric} ({without})")
    if without or any(line.is_best for line in lines):
        made.legend(
            frameon=False,
            fontsize="small",
            loc="lower center",
            bbox_to_anchor=(0.5, 1.08),
            ncols=2,
        )
    if colour_map is not None:
        made.figure.colorbar(colour_map, ax=made, label=metric, pad=0.09)
    return made


def _depth(line: Line, mode: str) -> tuple[bool, float]:
    """The worse, the earlier drawn; those without a value first."""
    if line.value is None:
        return False, 0.0
    return True, line.value if mode == "max" else -line.value


def _colours(
    ax: Axes, values: Sequence[float | None], mode: str, metric: str
) -> tuple[list[Any], Any]:
    """Each line's colour, and what explains them; dark is good."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    known = [value for value in values if value is not None]
    if not known:
        return [QUIET] * len(values), None
    low, high = min(known), max(known)
    is_log = low > 0 and high / low >= _LOG_SPAN
    norm = (LogNorm if is_log else Normalize)(low, high if high > low else low + 1e-12)
    palette = colormaps["viridis" if mode == "min" else "viridis_r"]
    mapped = [QUIET if value is None else palette(norm(value)) for value in values]
    return mapped, ScalarMappable(norm, palette) if high > low else None


def _draw_line(ax: Axes, line: Line, ys: Sequence[float], colour: Any) -> None:
    ax.plot(
        range(len(ys)),
        ys,
        color=colour,
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
        ax.axvline(at, color=TEXT, linewidth=0.9, zorder=1)
        for y, text in scale.ticks:
            ax.annotate(
                text,
                (at, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize="x-small",
                color=TEXT,
                zorder=5,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
            )
        label = f"{name}\n(log)" if scale.is_log else name
        ax.text(at, 1.04, label, ha="center", va="bottom", fontsize="small", color=TEXT)
    ax.set_xlim(-0.1, len(scales) - 1 + 0.35)
    ax.set_ylim(-0.04, 1.2)
    ax.set_axis_off()
