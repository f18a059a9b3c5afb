"""What happened: attempts of trials, restores and other events. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass


@dataclass(slots=True)
class Attempt:
    """One attempt of a trial. Times are in seconds since 1970, `time_total_s` in seconds of
    training; None for what is not known, or not yet.

    `nodes` are those of all ranks, that of rank 0 first. `end` says how it ended, "" while it has
    not: returned, failed, lost, paused, stopped, interrupted. `epoch` counts the restores before
    it, from 1.
    """

    attempt: int
    began_at: float
    epoch: int
    pid: int = 0
    hostname: str = ""
    nodes: Sequence[str] = ()
    from_iteration: int | None = None
    from_time_s: float | None = None
    to_iteration: int | None = None
    to_time_s: float | None = None
    reported_at: float | None = None
    ended_at: float | None = None
    end: str = ""
    why: str = ""
    failure: Mapping[str, Any] | None = None

    @property
    def node(self) -> str:
        """The node of rank 0; "" if its trial ran where the run did."""
        return self.nodes[0] if self.nodes else ""


@dataclass(slots=True)
class Restore:
    """A restore: when, after which last record, and the attempts that had not ended then, by
    trial. `retried` counts the trials whose last attempt before it had failed and that began
    again since: with new code, or with a retry that was due."""

    at: float
    epoch: int
    silent_since: float
    cut: dict[str, Attempt]
    was_ended: bool
    retried: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that happened to the experiment. `fields` are those of its record."""

    at: float
    epoch: int
    name: str
    fields: Mapping[str, Any]
