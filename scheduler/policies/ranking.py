"""A sorted collection that finds its items by their place, among few or very many."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

# A score or a time, and a number that no other trial has.
Standing = tuple[float, int]

# A full block is divided. Among 100,000 items there are about 35 blocks, and a place is found by
# adding up their sizes; in larger blocks, each change moves more.
_MOST = 4000
_LOWEST = (float("-inf"), -1)


class Ranking:
    """Items in ascending order.

    They lie in blocks: a single sorted list moves half of the items at each change (30 µs at
    100,000), and sorting when asked takes 5 ms at 10,000. A block is two arrays, so that a search
    reads memory that lies together: among 100,000 tuples, most steps of it wait for memory.
    """

    __slots__ = ("_floors", "_numbers", "_size", "_values")

    def __init__(self) -> None:
        self._size = 0
        self._values, self._numbers = [array("d")], [array("q")]
        # A block has the items from here on, up to the floor of the next block.
        self._floors: list[Standing] = [_LOWEST]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Standing]:
        for values, numbers in zip(self._values, self._numbers, strict=True):
            yield from zip(values, numbers, strict=True)

    def __getitem__(self, place: int) -> Standing:
        """The item at a place, counted from 0."""
        if not 0 <= place < self._size:
            raise IndexError(f"place {place} of {self._size}")
        passed = list(accumulate(map(len, self._values)))
        at = bisect_left(passed, place + 1)
        return self._values[at][place - passed[at]], self._numbers[at][place - passed[at]]

    def add(self, item: Standing) -> None:
        at, place = self._find(item)
        values, numbers = self._values[at], self._numbers[at]
        values.insert(place, item[0])
        numbers.insert(place, item[1])
        self._size += 1
        if len(values) > _MOST:
            self._divide(at)

    def remove(self, item: Standing) -> None:
        """Remove an item that is there."""
        at, place = self._find(item)
        del self._values[at][place], self._numbers[at][place]
        self._size -= 1
        if not self._values[at] and len(self._floors) > 1:
            del self._values[at], self._numbers[at]
            del self._floors[max(at, 1)]  # the first block begins with the lowest

    def count_below(self, item: Standing) -> int:
        """How many items are lower."""
        at, place = self._find(item)
        return sum(map(len, self._values[:at])) + place

    def _find(self, item: Standing) -> tuple[int, int]:
        """The block that an item belongs to, and the place there of the first one that is not
        lower."""
        at = bisect_right(self._floors, item) - 1
        values, numbers, (value, number) = self._values[at], self._numbers[at], item
        place = bisect_left(values, value)
        if place < len(values) and values[place] == value and numbers[place] < number:
            place = bisect_left(numbers, number, place, bisect_right(values, value, place))
        return at, place

    def _divide(self, at: int) -> None:
        values, numbers = self._values[at], self._numbers[at]
        half = len(values) // 2
        self._values[at : at + 1] = [values[:half], values[half:]]
        self._numbers[at : at + 1] = [numbers[:half], numbers[half:]]
        self._floors.insert(at + 1, (values[half], numbers[half]))
