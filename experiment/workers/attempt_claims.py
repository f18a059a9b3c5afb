"""What a worker claims of its attempt, as events. Pure: no I/O.

A worker's messages are data from outside: what contradicts those before it is refused.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.experiment.worker.job import Assignment
from holdfast.experiment.workers import claims
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.events import Reported, Saved, Started


class AttemptClaims:
    """One attempt, as its worker has told it so far. Each method raises ValueError for a claim
    that contradicts this."""

    def __init__(self, assignment: Assignment, *, is_rank: bool) -> None:
        """`is_rank`: the worker stages parts of checkpoints, without a number."""
        self.has_started = False
        self._assignment = assignment
        self._is_rank = is_rank
        self._iteration = assignment.iteration
        self._next_checkpoint = assignment.next_checkpoint

    def require_start(self) -> None:
        if not self.has_started:
            raise ValueError("it had not started")

    def started(self, said: claims.WorkerStarted) -> Started:
        if self.has_started:
            raise ValueError("it had started")
        self.has_started = True
        return Started(
            trial_id=self._assignment.trial_id,
            attempt=self._assignment.attempt,
            pid=said.pid,
            hostname=said.hostname,
            node_ip=said.node_ip,
            nodes=self._assignment.node_names,
        )

    def count(self, said: claims.WorkerReport) -> int:
        """Count a report, whether or not it is refused. Returns its iteration."""
        self.require_start()
        claims.exactly(said.iteration, "the iteration", self._iteration + 1)
        self._iteration += 1
        return self._iteration

    def reported(self, said: claims.WorkerReport) -> Reported:
        return Reported(
            trial_id=self._assignment.trial_id,
            attempt=self._assignment.attempt,
            iteration=self.count(said),
            metrics=said.metrics,
            timestamp=said.timestamp,
            time_this_iter_s=said.time_this_iter_s,
            time_total_s=said.time_total_s,
            checkpoint=said.checkpoint and self._record(said.checkpoint),
        )

    def saved(self, said: claims.WorkerSaved) -> Saved:
        self.require_start()
        return Saved(
            trial_id=self._assignment.trial_id,
            attempt=self._assignment.attempt,
            checkpoint=self._record(said.checkpoint),
        )

    def _record(self, known: CheckpointRecord) -> CheckpointRecord:
        """The record of a checkpoint of the newest iteration."""
        record = claims.record(
            known,
            attempt=self._assignment.attempt,
            iteration=self._iteration,
            least_index=0 if self._is_rank else self._next_checkpoint,
            is_part=self._is_rank,
        )
        self._next_checkpoint = record.index + 1
        return replace(record, node=self._assignment.node.name)
