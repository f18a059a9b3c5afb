"""Curves of real trainings, from benchmarks/data; the README there says how they were recorded."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.tasks.space import Axis, Config
from benchmarks.tasks.task import Task

FOLDER = Path(__file__).resolve().parent.parent / "data"
_LOGARITHMIC = ("lr", "hidden", "alpha", "batch")
_WHOLE = ("hidden", "batch")


@cache
def table(name: str) -> Mapping[str, NDArray[Any]]:
    """The arrays of one data set's file."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


def _axis(name: str, grid: NDArray[Any]) -> Axis:
    if grid.dtype.kind == "U":
        return Axis(name=name, choices=tuple(str(value) for value in grid))
    low, high = float(grid[0]), float(grid[-1])
    return Axis(name=name, low=low, high=high, log=name in _LOGARITHMIC, integer=name in _WHOLE)


def _borders(axis: Axis, grid: NDArray[Any]) -> Sequence[float]:
    """The borders between points of the grid, as fractions of the axis."""
    parts = [axis.part_of(float(value)) for value in grid]
    return [(one + next_) / 2 for one, next_ in pairwise(parts)]


def _nearest(axis: Axis, borders: Sequence[float], value: Any) -> int:
    if axis.choices:
        return list(axis.choices).index(value)
    return bisect(borders, axis.part_of(value))


def recorded(name: str, metric: str, about: str, seconds: Callable[[Config], float]) -> Task:
    """The task to minimize `metric`; each number is rounded to the nearest of the grid."""
    arrays = table(name)
    axes = [_axis(str(axis), arrays[str(axis)]) for axis in arrays["axes"]]
    borders = [[] if a.choices else _borders(a, arrays[a.name]) for a in axes]
    curves = arrays[metric]

    def step(epoch: int, config: Config) -> tuple[int, float]:
        at = tuple(
            _nearest(axis, borders_, config[axis.name])
            for axis, borders_ in zip(axes, borders, strict=True)
        )
        return epoch + 1, float(curves[(*at, epoch)])

    return Task(
        name=name,
        about=about,
        space=axes,
        epochs=curves.shape[-1],
        best=float(curves.min()),
        begun=0,
        step=step,
        seconds=seconds,
    )
