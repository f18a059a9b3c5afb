"""Axes to draw on, and the common style of all pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import MATPLOTLIB
from holdfast.text.values import format_value
from holdfast.trial.errors import TuneError

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
