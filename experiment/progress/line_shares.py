"""Who gets a line where there is not room for all.   PURE"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

T = TypeVar("T")


def shares(groups: Sequence[Sequence[T]], reserved: Sequence[int], room: int) -> list[T]:
    """At most `room` of all groups, in their order: as many of the first as fit, and so on, but
    for each group as many lines as are `reserved` for it are kept free."""
    kept = [min(len(group), lines) for group, lines in zip(groups, reserved, strict=True)]
    free = max(0, room - sum(kept))
    counts = []
    for group, least in zip(groups, kept, strict=True):
        more = min(len(group) - least, free)
        free -= more
        counts.append(least + more)
    taken = chain.from_iterable(group[:count] for group, count in zip(groups, counts, strict=True))
    return list(taken)[:room]


def lines_reserved(room: int) -> tuple[int, int]:
    """How many of `room` lines are kept for the best trials, and for the newest failures."""
    return min(5, room // 3), min(3, room // 4)
