"""Lets nodes go away, each at random times, and come back."""

from __future__ import annotations

from holdfast.simulate.agenda import Agenda
from holdfast.simulate.faults import Faults, Luck
from holdfast.simulate.pool import SimulatedPool
from holdfast.simulate.tally import Tally

# A node's number, and how often it was lost before.
Which = tuple[int, int]


class NodeLosses:
    """The lives of nodes whose workers are those of `pool`."""

    def __init__(
        self, pool: SimulatedPool, faults: Faults, agenda: Agenda, tally: Tally, luck: Luck
    ) -> None:
        self._pool = pool
        self._life_s = faults.node_life_s
        self._absence_s = faults.node_absence_s
        self._agenda = agenda
        self._tally = tally
        self._luck = luck

    def begin(self) -> None:
        """Let nodes be there, and go away from now on."""
        self._pool.places.open()
        for node in range(self._pool.places.nodes):
            self._expect((node, 0))

    def _expect(self, which: Which) -> None:
        if self._life_s is not None:
            seconds = self._luck.wait_s(self._life_s, "node", *which)
            self._agenda.after(seconds, self._announce, which, awaited=False)

    def _announce(self, which: Which) -> None:
        notice_s = self._pool.places.announce(which[0])
        if notice_s:
            self._agenda.after(notice_s, self._lose, which)
        else:
            self._lose(which)

    def _lose(self, which: Which) -> None:
        self._tally.faults["node"] += 1
        self._pool.lose(which[0])
        self._agenda.after(self._absence_s, self._restore, which)

    def _restore(self, which: Which) -> None:
        node, times = which
        self._pool.places.restore(node)
        self._pool.serve_waiting()
        self._expect((node, times + 1))
