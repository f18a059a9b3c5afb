"""Decides when a silent peer is lost. Pure: no I/O.

An agent sends beats, and the controller answers each: an agent that is not heard gets no answer,
so both sides notice a connection that is cut in one direction only. The agent's lease is the
shorter one: it has ended its workers when the controller gives their trials to other nodes.
"""

from __future__ import annotations

from holdfast.late import is_late


class Liveness:
    """When the other end was last heard, as far as this end could hear."""

    def __init__(self, lease_s: float, *, now: float, forgives: bool) -> None:
        """`forgives`: if this end was late itself, the other one may have been, too, on the same
        machine, and gets its whole lease again. An agent must not forgive: its trials may run
        elsewhere by now."""
        self._lease_s = lease_s
        self._forgives = forgives
        self._since = now

    @property
    def due(self) -> float:
        """When to look next."""
        return self._since + self._lease_s

    def is_lost(self, *, due: float, now: float, heard: float) -> bool:
        """Whether the other end is lost. `due` is the planned time of this look, `now` the actual
        one. `heard` is when the last bytes arrived; what had arrived must have been read before,
        because a late reader finds it only now."""
        self._since = max(self._since, heard)
        if now < self.due:
            return False
        if self._forgives and is_late(due, now):
            self._since = now
            return False
        return True
