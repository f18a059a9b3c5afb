"""The deadlines of a group: ranks that keep the others waiting are ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.experiment.progress.summary import RankWait
from holdfast.experiment.records.wall_clock import wall_time
from holdfast.experiment.workers.hang_timer import GroupTimer
from holdfast.scheduler.barrier import Barrier

# From the start of the first rank to that of the last: they are forked one after the other.
START_TIMEOUT_S = 60.0
# How long the other ranks may report their errors after the first failure.
AFTERMATH_S = 0.3


class RankDeadlines:
    """One deadline at a time. `hang` ends a rank; its second argument says what the rank has not
    done."""

    def __init__(
        self, barrier: Barrier, barrier_timeout_s: float, hang: Callable[[int, str], None]
    ) -> None:
        self._barrier = barrier
        self._timeout_s = barrier_timeout_s
        self._hang = hang
        self._timer = GroupTimer()

    def met(self) -> None:
        """The ranks wait for no other any more."""
        self._timer.disarm()

    def awaited(self, name: str, now: float) -> RankWait | None:
        """The ranks that the others wait for in a report, and how long at `now` (seconds since
        1970)."""
        since, ranks = self._timer.since, self._barrier.missing
        if since is None or not ranks:
            return None
        return RankWait(name=name, ranks=ranks, waited_s=max(0.0, now - since))

    def expect_starts(self, missing: Callable[[], Sequence[int]]) -> None:
        """All ranks must start soon after the first; `missing` returns those that have not."""
        if not self._timer.is_armed:
            late = f"had not started {START_TIMEOUT_S:g} s after other ranks"
            self._timer.arm(START_TIMEOUT_S, lambda: self._give_up(missing(), late))

    def expect_reports(self) -> None:
        """All ranks must report soon after the first."""
        if not self._timer.is_armed and self._barrier.missing:
            late = (
                f"has not reported for {self._timeout_s:g} s while other ranks waited with their "
                f"report {self._barrier.iteration + 1}"
            )
            self._timer.arm(
                self._timeout_s,
                lambda: self._give_up(self._barrier.missing, late),
                since=wall_time(),
            )

    def expect_texts(self, missing: Callable[[], Sequence[int]]) -> None:
        """All ranks must come to a meeting soon after the first."""
        if not self._timer.is_armed:
            late = (
                f"has not come to the barrier, or the like, for {self._timeout_s:g} s while other "
                f"ranks waited there"
            )
            self._timer.arm(self._timeout_s, lambda: self._give_up(missing(), late))

    def expect_merges(self, missing: Callable[[], Sequence[int]]) -> None:
        """The ranks that merge a checkpoint must have done so soon: all others wait for them."""
        late = (
            f"has not put the checkpoint of all ranks together for {self._timeout_s:g} s, while "
            f"they waited with their report {self._barrier.iteration + 1}"
        )
        self._timer.arm(self._timeout_s, lambda: self._give_up(missing(), late))

    def after_failure(self, then: Callable[[], None]) -> None:
        """Call `then` when the other ranks had time to report their errors."""
        self._timer.disarm()
        self._timer.arm(AFTERMATH_S, then)

    def _give_up(self, ranks: Sequence[int], late: str) -> None:
        for rank in ranks:
            self._hang(rank, late)
