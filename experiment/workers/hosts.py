"""The owners of workers, ranks and groups, as protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import Machine
from holdfast.runtime.launcher import Launcher
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event
from holdfast.trial.trial import CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimeouts:
    """Time limits of a worker in seconds.

    They are: to end, to save before it is preempted, between two reports, and to report while
    other ranks wait in theirs.
    """

    grace_s: float
    preemption_grace_s: float = 5.0
    hang_timeout_s: float | None = None
    barrier_timeout_s: float = 1800.0


class WorkerHost(Protocol):
    """The owner of workers: starts them and gets their events."""

    @property
    def launcher(self) -> Launcher: ...

    def post(self, event: Event) -> None: ...

    def show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None: ...


class ActorHost(WorkerHost, Protocol):
    """The owner of an actor."""

    def on_rank_message(self, message: Message) -> None:
        """Handle a message that only ranks send. Raises ValueError for an unknown message."""

    def machines(self) -> list[Machine]:
        """Those that the run has now."""

    def refusal(self, node: str) -> str:
        """Why a checkpoint cannot be stored from this node; "" if it can."""


class GroupHost(ActorHost, Protocol):
    """The owner of a group."""

    def has_room(self, trial_id: str) -> bool: ...

    def reported(self, trial_id: str) -> list[CheckpointRecord]:
        """The checkpoints of the trial that are kept, oldest first."""

    def note_shares(self, trial_id: str, index: int, left_out: Mapping[str, list[str]]) -> None:
        """Called before each report with a checkpoint, which has a share on each of these nodes;
        on none if one node has all."""
