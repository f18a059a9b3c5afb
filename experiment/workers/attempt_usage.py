"""What an attempt has used, from what its worker's process has."""

from __future__ import annotations

from holdfast.experiment.worker.job import Assignment
from holdfast.runtime.usage.used import Used
from holdfast.trial.events import Measured
from holdfast.trial.resources import Usage

# The journal gets the first values of an attempt soon, and later ones less and less often.
_LONGEST_S = 60.0


class AttemptUsage:
    """The usage of the current attempt of one worker. A reused process has run others before."""

    def __init__(self, *, is_rank: bool) -> None:
        self._is_rank = is_rank
        self._before: Used | None = None
        self._last: Used | None = None
        self._due_s = 0.0

    def begin(self, *, is_reused: bool) -> None:
        """The next attempt begins, in a new process unless that `is_reused`."""
        self._before = self._last if is_reused else None
        self._last = self._before
        self._due_s = 0.0

    def so_far(self, assignment: Assignment, used: Used) -> Measured | None:
        """The event, if one is due."""
        self._last = used
        measured = self._measured(assignment, used)
        wall_s = measured.usage.wall_s
        if wall_s < self._due_s:
            return None
        self._due_s = wall_s + min(wall_s, _LONGEST_S)
        return measured

    def at_end(self, assignment: Assignment, used: Used | None = None) -> Measured | None:
        """The event at the attempt's end, from the last sample unless `used` is known. None if
        nothing is known."""
        used = used or (None if self._last is self._before else self._last)
        if used is None:
            return None
        measured = self._measured(assignment, used)
        self._before = self._last = used  # it is not told again
        return measured

    def _measured(self, assignment: Assignment, used: Used) -> Measured:
        before = self._before
        wall_s = round(max(0.0, used.wall_s - (before.wall_s if before else 0.0)), 3)
        cpu_s = round(max(0.0, used.cpu_s - (before.cpu_s if before else 0.0)), 3)
        rate = used.gpu_utilisation
        usage = Usage(
            attempt=assignment.attempt,
            wall_s=wall_s,
            cpu_s=cpu_s,
            memory_bytes=used.memory_bytes,
            gpu_s=wall_s * amount_of(assignment, "GPU", is_rank=self._is_rank),
            gpu_memory_bytes=used.gpu_memory_bytes,
            gpu_utilisation=None if rate is None else round(rate, 4),
        )
        return Measured(trial_id=assignment.trial_id, usage=usage)


def amount_of(assignment: Assignment, resource: str, *, is_rank: bool) -> float:
    """How much of a resource the worker has: a rank has its own bundle."""
    several = [assignment.own_bundle] if is_rank else assignment.bundles
    return sum(bundle.get(resource, 0.0) for bundle in several)
