"""The members of a population: when each trial was last compared, and its score then."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice

from holdfast.dataclass import dataclass
from holdfast.trial.trial import Status, Trial

# A score or a time, and a number that no other trial has.
Standing = tuple[float, int]
# A full block is divided. Among 100,000 items there are about 35 blocks, and a place is found by
# adding up their sizes; in larger blocks, each change moves more.
_MOST = 4000
_LOWEST = (float("-inf"), -1)


@dataclass(slots=True)
class Member:
    """A trial of the population: its newest score (more is better) and the time of that score.

    Checkpoints from iteration `good_from` on are as good as the score. `changes` counts how often
    the trial was cloned from another one. `is_to_yield`: with its next checkpoint, the trial makes
    way for trials that wait for resources. `number` counts the members in the order in which they
    were added.
    """

    number: int
    time: float = 0.0
    score: float | None = None
    good_from: float = 0
    changes: int = 0
    is_to_yield: bool = False


class Members:
    """All members, and the rankings that a comparison needs, kept while the trials change.

    With `synch`, trials change together. The worst and the best are `quantile` each of the living
    members with a score; no trial is both. Of equal scores, those of earlier members are lower.
    """

    def __init__(self, quantile: float, *, synch: bool) -> None:
        self._quantile, self._synch = quantile, synch
        self._members: dict[str, Member] = {}
        self._ids: list[str] = []  # by number
        self._scores, self._sources, self._waiting = _Places(), _Places(), _Places()

    def __getitem__(self, trial_id: str) -> Member:
        return self._members[trial_id]

    def add(self, trial: Trial) -> None:
        self._members[trial.trial_id] = Member(number=len(self._members))
        self._ids.append(trial.trial_id)
        self.update(trial)

    def follow(self, before: Trial, trial: Trial) -> None:
        """The trial has changed."""
        if trial.status is before.status and trial.origin is before.origin:
            old, new = before.newest_checkpoint, trial.newest_checkpoint
            if old is new:
                return
            if old is not None and new is not None:
                if new.iteration == old.iteration:
                    return
                member = self._members.get(trial.spec.trial_id)
                is_source = member is not None and member.number in self._sources.values
                if is_source and new.iteration > old.iteration:
                    return
        self.update(trial)

    def rank(self, trial: Trial) -> tuple[bool, bool]:
        """The member of a living trial has another score; call `update` next. Returns whether it
        is now among the worst, and whether among the best."""
        member = self._members[trial.spec.trial_id]
        number, score = member.number, member.score
        assert score is not None
        self._scores.put(number, score)
        ranking, extremes = self._scores.ranking, self._extremes
        place = ranking.count_below((score, number))
        return place < extremes, place >= len(ranking) - extremes

    def update(self, trial: Trial) -> None:
        """The trial, or what its member knows of it, has changed."""
        member = self._members.get(trial.spec.trial_id)
        if member is None:
            return
        number = member.number
        score = None if trial.status.is_final else member.score
        self._scores.put(number, score)
        self._sources.put(number, score if self._can_be_cloned(member, trial) else None)
        self._waiting.put(number, member.time if trial.status is Status.PAUSED else None)

    @property
    def worst(self) -> list[str]:
        """From the worst on."""
        return [self._ids[number] for _, number in islice(self._scores.ranking, self._extremes)]

    @property
    def best_sources(self) -> int:
        """How many of the best can be cloned."""
        best, ranking = self._extremes, self._scores.ranking
        if not best:
            return 0
        sources = self._sources.ranking
        return len(sources) - sources.count_below(ranking[len(ranking) - best])

    def best_source(self, number: int) -> str:
        """One of them, counted from 0 for the one with the lowest score."""
        ranking = self._sources.ranking
        _, found = ranking[len(ranking) - self.best_sources + number]
        return self._ids[found]

    def paused(self, most: int | None = None) -> list[str]:
        """The paused trials, those with the least training first; at most so many."""
        return [self._ids[number] for _, number in islice(self._waiting.ranking, most)]

    @property
    def _extremes(self) -> int:
        count = len(self._scores.ranking)
        return min(math.ceil(count * self._quantile), count // 2)

    def _can_be_cloned(self, member: Member, trial: Trial) -> bool:
        """True if the trial's newest checkpoint is as good as its score.

        A trial that was not among the best when it was last compared may have saved long ago, when
        it was worse. Trials that change together have just saved.
        """
        newest = trial.newest_checkpoint
        if newest is None or trial.origin is not None or member.score in (None, -math.inf):
            return False
        return self._synch or newest.iteration >= member.good_from


class _Places:
    """A ranking of some of the members, and the value of each by its number."""

    def __init__(self) -> None:
        self.ranking = Ranking()
        self.values: dict[int, float] = {}

    def put(self, number: int, value: float | None) -> None:
        """Rank the member by this value; None for one that is not ranked."""
        known = self.values.get(number)
        if known == value:
            return
        if known is not None:
            self.ranking.remove((known, number))
        if value is None:
            del self.values[number]
        else:
            self.values[number] = value
            self.ranking.add((value, number))


def time_of_clone(member: Member, trial: Trial, time_attr: str) -> float:
    """The time of the source's last comparison, or of its newest checkpoint if that is older."""
    checkpoint = trial.checkpoints[-1]
    if time_attr == "training_iteration":
        return min(member.time, checkpoint.iteration)
    if time_attr == "time_total_s":
        return min(member.time, checkpoint.time_total_s)
    return member.time


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
