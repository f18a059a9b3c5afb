"""Learning curves as text: a letter for each curve, so that they differ also without colours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from string import ascii_lowercase

from holdfast.experiment.results.drawing.curves import PlotCurve
from holdfast.text.values import format_value

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
    points = [_finite(curve) for curve in curves]
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


def _finite(curve: PlotCurve) -> list[tuple[float, float]]:
    both = zip(curve.xs, curve.ys, strict=True)
    return [(x, y) for x, y in both if math.isfinite(x) and math.isfinite(y)]


def _across(
    curve: Sequence[tuple[float, float]], first: float, last: float, columns: int
) -> list[tuple[int, float]]:
    """The value in each column that the curve crosses; between two points, on their line."""
    at = [(_step(x, first, last, columns), y) for x, y in sorted(curve)]
    found: dict[int, float] = {}
    for (left, low), (right, high) in itertools.pairwise(at):
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
