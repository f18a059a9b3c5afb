"""Which places of an epoch's order each rank is given, also when their number changes under way.

Pure. The order of an epoch is a row of places, 0 to count; what is left of it are ranges of those.
Each rank is given one stretch of what is left, so that it reads its own files and not everybody's.
All ranks are given equally many, step by step, so that one number, taken by each, says what all
have been given.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def length(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def cut(ranges: Ranges, start: int, stop: int) -> Ranges:
    """From the `start`-th to before the `stop`-th place of `ranges`."""
    found, passed = [], 0
    for low, high in ranges:
        first, last = max(start - passed, 0), min(stop - passed, high - low)
        if first < last:
            found.append((low + first, low + last))
        passed += high - low
    return tuple(found)


def share(left: Ranges, rank: int, ranks: int, *, pads: bool = True) -> Ranges:
    """What this rank is given of what is left: equally many places as every other rank.

    Where they do not go evenly into `ranks`, the ranks that have one less are given their last
    one twice; without `pads` those that have one more leave it out. Where there are fewer places
    than ranks, those that have none are given one of the others'.
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
    """What is left of `left` when each of so many ranks has taken so many places of its share."""
    rest: list[Range] = []
    for rank in range(ranks):
        start, stop = _stretch(left, rank, ranks)
        rest += cut(left, min(start + taken, stop), stop)
    return _joined(rest)


def left_of(count: int, dealt: Iterable[tuple[int, int]]) -> Ranges:
    """What is left of `count` places after each (ranks, taken), one after the other."""
    left: Ranges = ((0, count),) if count else ()
    for ranks, taken in dealt:
        left = left_after(left, ranks, taken)
    return left


def _stretch(left: Ranges, rank: int, ranks: int) -> Range:
    """Of stretches that differ by one place at most."""
    least, more = divmod(length(left), ranks)
    start = rank * least + min(rank, more)
    return start, start + least + (rank < more)


def _joined(ranges: list[Range]) -> Ranges:
    if not ranges:
        return ()
    breaks = [at for at, (one, other) in enumerate(pairwise(ranges), 1) if one[1] != other[0]]
    groups = pairwise([0, *breaks, len(ranges)])
    return tuple((ranges[first][0], ranges[last - 1][1]) for first, last in groups)
