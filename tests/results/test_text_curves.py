"""Learning curves in a terminal."""

from __future__ import annotations

import math

from holdfast.results.drawing import PlotCurve, letters_of, text_curves


def curve(*ys: float, first: int = 1) -> PlotCurve:
    return PlotCurve(label="x", xs=range(first, first + len(ys)), ys=ys)


def drawn(*curves: PlotCurve, width: int = 27, height: int = 5) -> list[str]:
    return text_curves(curves, metric="loss", x="n", width=width, height=height)


def test_each_curve_has_its_letter_and_a_star_where_they_meet() -> None:
    assert drawn(curve(4.0, 3, 2, 1, 0), curve(0.0, 1, 2, 3, 4)) == [
        "loss",
        "4 |aaaa                bbbb",
        "  |    aaaaa      bbbbb",
        "  |         ******",
        "  |    bbbbb      aaaaa",
        "0 |bbbb                aaaa",
        "  +------------------------",
        "   1          n           5",
    ]


def test_a_steep_curve_has_no_holes_and_a_wide_range_is_logarithmic() -> None:
    steep = drawn(curve(8.0, 1.0, 1.0, 1.0, 1.0), width=14, height=4)
    assert steep[1:5] == ["8 |a", "  | a", "  | a", "1 |  aaaaaaaaa"]
    wide = drawn(curve(100.0, 10.0, 1.0, 0.1), height=4)
    assert wide[0] == "loss (logarithmic)"
    assert [line[:5] for line in wide[1:5]] == ["100 |", "    |", "    |", "0.1 |"]
    assert all(line.count("a") for line in wide[1:5])


def test_every_line_fits_and_what_is_not_finite_is_left_out() -> None:
    lines = drawn(curve(1.0, math.nan, 0.5), curve(math.inf, first=9), width=40)
    assert max(map(len, lines)) <= 40
    assert lines[-1].split() == ["1", "n", "3"]
    assert drawn(curve(math.nan), curve()) == []
    one = drawn(curve(0.25))
    assert [line.count("a") for line in one[1:-2]] == [1, 0, 0, 0, 0]


def test_a_curve_without_values_has_no_letter() -> None:
    assert letters_of([curve(1.0), curve(math.nan), curve(2.0)]) == ["a", "", "c"]
