"""The order of an epoch: a pure function of a dataset's blocks, the seed and the epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Self

from holdfast.dataclass import dataclass

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
