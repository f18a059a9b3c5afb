"""What workers, ranks and groups need of their owner, as protocols."""

from __future__ import annotations

from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.runtime.launcher import Launcher
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimeouts:
    """Seconds that a worker has: to end, to save before it is preempted, between two reports, and
    to report while other ranks wait with theirs."""

    grace_s: float
    preemption_grace_s: float = 5.0
    hang_timeout_s: float | None = None
    barrier_timeout_s: float = 1800.0


class WorkerHost(Protocol):
    """Where workers come from, and who hears what becomes of them."""

    @property
    def launcher(self) -> Launcher: ...

    def post(self, event: Event) -> None: ...

    def show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None: ...


class ActorHost(WorkerHost, Protocol):
    """What an actor needs of its controller."""

    def hear(self, message: Message) -> None:
        """Take in a message that only a rank sends. Raises ValueError for one that none sends."""


class GroupHost(ActorHost, Protocol):
    """What a group needs of its worker pool."""

    def has_room(self, trial_id: str) -> bool: ...
