"""The share of each rank in an epoch's order, also after the number of ranks has changed.

Pure. The order of an epoch is a list of places from 0 to count; its rest is a list of ranges.
Each rank gets one stretch of the rest, so that it reads only its own files. All ranks get equally
many, step by step, so one number, taken by each, describes what all have had.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def length(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def cut(ranges: Ranges, start: int, stop: int) -> Ranges:
    """The places of `ranges` from the `start`-th to before the `stop`-th."""
    found, passed = [], 0
    for low, high in ranges:
        first, last = max(start - passed, 0), min(stop - passed, high - low)
        if first < last:
            found.append((low + first, low + last))
        passed += high - low
    return tuple(found)


def share(left: Ranges, rank: int, ranks: int, *, pads: bool = True) -> Ranges:
    """This rank's share of the rest: equally many places for every rank.

    If the places are not a multiple of `ranks`, ranks with one fewer get their last one twice;
    without `pads`, ranks with one more leave it out. If there are fewer places than ranks, ranks
    without any get one of another rank.
    """
    start, stop = _stretch(left, rank, ranks)
    least, more = divmod(length(left), ranks)
    if not pads:
        return cut(left, start, start + least)
    own = cut(left, start, stop)
    if rank < more or not more:
        return own
    again = stop - 1 if least else rank % more
    return own + cut(left, again, again + 1)


def left_after(left: Ranges, ranks: int, taken: int) -> Ranges:
    """The rest of `left` after each rank has taken `taken` places of its share."""
    rest: list[Range] = []
    for rank in range(ranks):
        start, stop = _stretch(left, rank, ranks)
        rest += cut(left, min(start + taken, stop), stop)
    return _joined(rest)


def left_of(count: int, dealt: Iterable[tuple[int, int]]) -> Ranges:
    """The rest of `count` places after each (ranks, taken), in order."""
    left: Ranges = ((0, count),) if count else ()
    for ranks, taken in dealt:
        left = left_after(left, ranks, taken)
    return left


def _stretch(left: Ranges, rank: int, ranks: int) -> Range:
    """The rank's stretch; stretches differ by one place at most."""
    least, more = divmod(length(left), ranks)
    start = rank * least + min(rank, more)
    return start, start + least + (rank < more)


def _joined(ranges: list[Range]) -> Ranges:
    if not ranges:
        return ()
    breaks = [at for at, (one, other) in enumerate(pairwise(ranges), 1) if one[1] != other[0]]
    groups = pairwise([0, *breaks, len(ranges)])
    return tuple((ranges[first][0], ranges[last - 1][1]) for first, last in groups)
