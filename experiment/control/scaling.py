"""How many nodes a run wants: it grows with the queue, and gives back nodes that have no work."""

from __future__ import annotations

from holdfast.dataclass import dataclass
from holdfast.scheduler.demand import Demand

# Between two looks, at most and at least. Each counts the whole queue.
_LOOK_S = 2.0
_SHORTEST_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The number of nodes that the run wants now, and those to give back."""

    count: int
    surplus: tuple[str, ...] = ()


class ElasticSize:
    """The size of a cluster of one kind of nodes, from `least` to `most`. A node that has had no
    work for `idle_s` seconds is given back."""

    def __init__(self, least: int, most: int, *, idle_s: float) -> None:
        self._least = least
        self._most = most
        self._idle_s = idle_s
        self._idle_since: dict[str, float] = {}

    @property
    def look_s(self) -> float:
        """The time between two looks."""
        return min(_LOOK_S, max(_SHORTEST_LOOK_S, self._idle_s))

    def look(self, demand: Demand, now: float) -> Scale:
        """What follows from the `demand` at `now` (seconds, of any clock). A node that was given
        back is not here any more, although its agent is still ending."""
        here = demand.here
        self._idle_since = {node: self._idle_since.get(node, now) for node in demand.idle}
        wanted = min(self._most, max(self._least, sum(demand.wanted.values())))
        rested = [n for n, since in self._idle_since.items() if now - since >= self._idle_s]
        surplus = tuple(rested[: max(0, len(here) - wanted)])
        # A node that is idle but not long enough still counts as wanted: it would come again.
        return Scale(count=max(wanted, len(here) - len(surplus)), surplus=surplus)
