"""Finds a node with room for a request, without a look at each of a thousand nodes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from holdfast.scheduler.capacity import Capacity, Level, units

# A node: its number, by which nodes with equally much free are sorted, and its name.
Member = tuple[int, str]


class FreeNodes:
    """Nodes in groups: those of a group have equally much free of GPUs, CPUs and `others`.

    The same requests fit on all nodes of a group. A thousand nodes that run up to ten equal trials
    each are at most eleven groups.
    """

    def __init__(self, others: tuple[str, ...]) -> None:
        self._others = others
        self._level_of: dict[Member, Level] = {}
        self._groups: dict[Level, list[Member]] = {}
        self._levels: list[Level] = []

    def put(self, member: Member, capacity: Capacity) -> None:
        """Add a node, or note that what is free there has changed."""
        level, was = capacity.level(self._others), self._level_of.get(member)
        if was == level:
            return
        if was is not None:
            self._leave(was, member)
        self._level_of[member] = level
        group = self._groups.get(level)
        if group is None:
            self._groups[level] = [member]
            insort(self._levels, level)
        else:
            insort(group, member)

    def drop(self, member: Member) -> None:
        """Remove a node."""
        self._leave(self._level_of.pop(member), member)

    def groups(self, amounts: Mapping[str, float]) -> Iterator[list[Member]]:
        """The groups that may have room for this request, those with the least free first."""
        least = units(amounts.get("GPU", 0)), units(amounts.get("CPU", 0))
        for at in range(bisect_left(self._levels, least), len(self._levels)):
            yield self._groups[self._levels[at]]

    def _leave(self, level: Level, member: Member) -> None:
        group = self._groups[level]
        if len(group) == 1:
            del self._groups[level], self._levels[bisect_left(self._levels, level)]
        else:
            del group[bisect_left(group, member)]
