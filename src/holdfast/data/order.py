"""The order of an epoch: a pure function of a dataset's blocks, the seed and the epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Self

from holdfast.dataclass import dataclass

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


_BLOCKS, _WINDOWS = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """The shuffling of rows in each epoch.

    Rows are shuffled within windows of `window` rows; with `blocks`, whole blocks (a table, a row
    group of a file) are shuffled first. A window that holds everything is a full shuffle.
    """

    seed: int
    window: int
    blocks: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "window": self.window, "blocks": self.blocks}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of the rows in one epoch.

    `blocks` has the numbers of the blocks in this order, `starts` the place at which each begins,
    and last the number of rows.
    """

    blocks: Sequence[int]
    starts: Sequence[int]
    shuffle: Shuffle | None
    epoch: int

    @classmethod
    def of(cls, sizes: Sequence[int], shuffle: Shuffle | None, epoch: int) -> Self:
        """The order of blocks of these sizes, in rows."""
        blocks: Sequence[int] = range(len(sizes))
        if shuffle is not None and shuffle.blocks and len(sizes) > 1:
            blocks = permutation(len(sizes), shuffle.seed, epoch, _BLOCKS).tolist()
        starts = (0, *accumulate(sizes[block] for block in blocks))
        return cls(blocks=blocks, starts=starts, shuffle=shuffle, epoch=epoch)

    def stretch(self, place: int) -> tuple[int, int]:
        """The first place, and the one after the last, of what is read at once: a block, or a
        window."""
        if self.shuffle is None:
            at = bisect_right(self.starts, place) - 1
            return self.starts[at], self.starts[at + 1]
        start = place - place % self.shuffle.window
        return start, min(start + self.shuffle.window, self.starts[-1])

    def parts(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """The parts of blocks at these places: number of the block, first row, row after the
        last."""
        found = []
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            until = min(stop, self.starts[at + 1])
            if start < until:
                begins = self.starts[at]
                found.append((self.blocks[at], start - begins, until - begins))
            start, at = until, at + 1
        return found

    def rows(self, start: int, stop: int) -> Any:
        """For the window from `start` on, the row at each place, as an array.

        None if they keep their places.
        """
        if self.shuffle is None:
            return None
        return permutation(stop - start, self.shuffle.seed, self.epoch, _WINDOWS, start)


def parts_of(sizes: Sequence[int], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The parts of blocks of these sizes that have the rows `start` to `stop` in stored order, as
    far as there are rows: number of the block, first row, row after the last."""
    order = Order.of(sizes, None, 0)
    return order.parts(max(start, 0), min(stop, order.starts[-1]))


def permutation(count: int, *seeds: int) -> Any:
    """0 to `count` in an order that depends only on `seeds`, in any version of NumPy.

    NumPy never changes the numbers of RandomState and SeedSequence (NEP 19), unlike those of a
    Generator. So a training may resume with another version in the middle of an epoch.
    """
    import numpy as np

    bits = np.random.MT19937(np.random.SeedSequence(seeds))
    return np.random.RandomState(bits).permutation(count)
