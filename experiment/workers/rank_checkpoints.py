"""The checkpoints of a group: its ranks put their parts together for each report."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.experiment.worker.job import Assignment
from holdfast.experiment.workers import claims
from holdfast.experiment.workers.actor import TrialActor
from holdfast.experiment.workers.rank_merge import (
    MergedRanks,
    MergedShare,
    RankMerge,
    shared_files,
)
from holdfast.runtime.wire import Message
from holdfast.scheduler.barrier import Met
from holdfast.trial.checkpoint import checkpoint_dirname


class CannotMerge(Exception):
    """The parts cannot be one checkpoint. The text says why."""


class RankCheckpoints:
    """Numbers the checkpoints of one attempt, from `assignment.next_checkpoint` on."""

    def __init__(
        self, actors: Sequence[TrialActor], assignment: Assignment, *, refuses_clashes: bool
    ) -> None:
        self._actors = actors
        self._attempt = assignment.attempt
        self._refuses_clashes = refuses_clashes
        self._merge: RankMerge | None = None
        self.next = assignment.next_checkpoint

    def begin(self, met: Met) -> None:
        """Order the parts of a report to be put together. Raises CannotMerge."""
        self._merge = RankMerge(met, [actor.assignment.node.name for actor in self._actors])
        if refusal := self._merge.refusal:
            self._merge = None
            raise CannotMerge(refusal)
        for rank, order in self._merge.orders(self.next).items():
            self._actors[rank].tell(order)

    @property
    def missing(self) -> Sequence[int]:
        """The ranks that have not put their part together yet."""
        return () if self._merge is None else self._merge.missing

    def hear_validation(self, status: object, found: object) -> None:
        """The rank that merges has validated the checkpoint. Raises ValueError."""
        if self._merge is None:
            raise ValueError("nobody asked for it")
        self._merge.validated(*claims.validated(status, found))

    def hear(self, rank: int, message: Message, iteration: int) -> MergedRanks | None:
        """A rank has put the parts on its node together. Returns the checkpoint after the last
        one.

        Raises CannotMerge, and ValueError if it is not a checkpoint of this report.
        """
        _, plain, clashes, *files = message
        merge, count = self._merge, len(self._actors)
        if merge is None:
            raise ValueError("nobody asked for it")
        record = claims.record(
            claims.checkpoint(plain),
            attempt=self._attempt,
            iteration=iteration,
            least_index=self.next,
            is_part=merge.is_shared,
        )
        share = MergedShare(
            record=record,
            clashes=claims.clashes(clashes, count),
            files=shared_files(files[0], count) if files else {},
        )
        merge.add(rank, share)
        if merge.missing:
            return None
        if self._refuses_clashes and (clash := merge.clash()):
            raise CannotMerge(clash)
        whole = merge.whole()
        self.next = whole.record.index
        self._tell_of(whole)
        self.next += 1
        return whole

    def _tell_of(self, whole: MergedRanks) -> None:
        """Tell the ranks of the new checkpoint: those on its node can read it."""
        for actor in self._actors:
            is_here = not whole.left_out and actor.assignment.node.name == whole.record.node
            actor.tell(["newest" if is_here else "saved", checkpoint_dirname(self.next)])
