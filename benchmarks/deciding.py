"""Draws the cost of a decision by the number of trials: `python -m benchmarks.deciding
PICTURE`."""

from __future__ import annotations

import sys
from math import log
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from benchmarks.schedulers.simulating import decide

_ALIVE = (100, 316, 1000, 3162, 10_000, 31_623, 100_000)
_REPORTS = 60_000
_RUNS = 5
_DOTS_PER_INCH = 80


def main() -> None:
    # In turns, so that other load on the machine is spread over all sizes.
    turns = [[1e6 * decide("asha", alive, _REPORTS) for alive in _ALIVE] for _ in range(_RUNS)]
    taken_us = [sorted(of_size) for of_size in zip(*turns, strict=True)]
    for alive, found in zip(_ALIVE, taken_us, strict=True):
        print(f"{alive:>7,} trials alive  {median(found):5.1f} µs")
    draw(taken_us, Path(sys.argv[1]))


def draw(taken_us: list[list[float]], file: Path) -> None:
    """Draw the median of the runs, and a band from the fastest to the slowest.

    On this axis each step multiplies the number of trials, so a logarithm is a straight line.
    """
    medians = [median(found) for found in taken_us]
    figure = Figure(figsize=(6, 4), layout="constrained")
    panel = figure.subplots()
    panel.plot(_ALIVE, medians, marker="o", label="the machine with ASHA")
    panel.fill_between(
        _ALIVE, [min(found) for found in taken_us], [max(found) for found in taken_us], alpha=0.2
    )
    least, most = _ALIVE[0], _ALIVE[-1]
    may = medians[0] * log(most) / log(least)
    panel.plot((least, most), (medians[0], may), "--", label="as the logarithm of the trials")
    panel.set(xscale="log", ylim=(0, None), xlabel="trials alive", ylabel="CPU for a report, µs")
    panel.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=_DOTS_PER_INCH)


if __name__ == "__main__":
    main()
