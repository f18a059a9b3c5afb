"""The errors of an experiment. Their messages state facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from holdfast.dataclass import dataclass
from holdfast.errors import TuneError as TuneError
from holdfast.names import printable
from holdfast.schema import Count, NodeName, UnreadableRecord

_SHOWN_CHARS = 200


class InvalidConfig(TuneError, ValueError):
    """A setting is not valid: the message names it, its value and what is allowed."""


def require(condition: bool, message: str) -> None:
    """Raise InvalidConfig with `message` unless `condition` holds."""
    if not condition:
        raise InvalidConfig(message)


class InvalidSearchSpace(TuneError, ValueError):
    """A part of `param_space` cannot be sampled; the message names the key."""


class InvalidMetrics(TuneError, ValueError):
    """A reported value cannot be stored; the message names its key and type."""


class ImpossibleRecord(UnreadableRecord):
    """A record that cannot follow the records before it; `event` is the decoded record."""

    def __init__(self, event: object, error: Exception) -> None:
        fault = printable(f"{type(error).__name__}: {error}"[:_SHOWN_CHARS])
        super().__init__(f"{type(event).__name__} cannot follow the records before it ({fault})")
        self.event = event


class InvalidTransition(TuneError):
    """An event reached a trial in a state whose table has no row for it: a bug in holdfast.

    `story` describes the trial before the event, `event` is the event.
    """

    def __init__(self, story: str, event: object) -> None:
        super().__init__(f"{type(event).__name__} is impossible for {story}: {event!r:.300}")
        self.story = story
        self.event = event


class ImpossibleResources(TuneError, ValueError):
    """This machine can never satisfy a request; `requested` and `available` hold the amounts."""

    def __init__(
        self, message: str, requested: dict[str, float], available: dict[str, float]
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.available = available


class ExperimentExists(TuneError):
    """`fit()` was called with the name of an experiment that is not finished; `path` is its
    folder."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class ExperimentInUse(TuneError):
    """Another process or thread is using the experiment; `path` is its folder, `holder` names the
    user."""

    def __init__(self, message: str, path: str, holder: str) -> None:
        super().__init__(message)
        self.path = path
        self.holder = holder


ProcessFailureKind = Literal["lost", "memory", "hang", "preempted"]
"""What happens to a process. The end of the machine, or of the job, causes them too."""

FailureKind = Literal["user", "setup", "stopper", "checkpoint", ProcessFailureKind]

# `Failure.type_name` of a failure without an exception.
LOST_TYPES: Mapping[ProcessFailureKind, str] = {
    "lost": "WorkerLost",
    "memory": "OutOfMemory",
    "hang": "WorkerHung",
    "preempted": "Preempted",
}
OF_THE_PROCESS: tuple[FailureKind, ...] = tuple(LOST_TYPES)
_NO_ROOM = "No space left on device", "Disk quota exceeded"  # ENOSPC and EDQUOT, in messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt at a trial failed, as plain data.

    `kind` is one of `user` (the trainable raised), `setup` (it could not be started), `lost` (its
    process died), `memory` (the kernel killed it because memory ran out), `hang` (it reported
    nothing for too long), `preempted` (another process sent it SIGTERM), `stopper` (the user's
    stop function raised), `checkpoint` (the checkpoint to resume from could not be read; it does
    not count as a failure of the trial). `traceback` is text, empty if there is none. `node` is
    empty on the controller's machine. `rank` is that of a worker among several; None for a trial
    of one worker.
    """

    kind: FailureKind
    type_name: str
    message: str
    traceback: str = ""
    pid: Count | None = None
    hostname: str = ""
    node: NodeName = ""
    rank: Count | None = None

    @property
    def headline(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name

    @property
    def is_no_room(self) -> bool:
        """True if a disk was full, or a quota used up, in holdfast's own files or the user's."""
        return any(text in self.message for text in _NO_ROOM)

    @property
    def on_node(self) -> str:
        """`on node a (host gpu7)`; empty on the controller's machine."""
        return on_node(self.node, self.hostname)


def on_node(node: str, hostname: str = "") -> str:
    """`on node a (host gpu7)`; without the host if the node has its name, and "" if there is no
    node."""
    if not node:
        return ""
    is_named_so = node == hostname.partition(".")[0]
    return f"on node {node}" + (f" (host {hostname})" if hostname and not is_named_so else "")


def lost_worker(
    kind: ProcessFailureKind, cause: str, *, pid: int | None, hostname: str = "", node: str = ""
) -> Failure:
    """The failure of an attempt whose worker process ended first; `cause` says how."""
    return Failure(
        kind=kind,
        type_name=LOST_TYPES[kind],
        message=f"the worker process {pid or ''} {cause}".replace("  ", " "),
        pid=pid or None,
        hostname=hostname,
        node=node,
    )


class TrialError(TuneError):
    """The error that ended a trial: `Result.error`, and the cause when `fit()` raises.

    Has `trial_id`, `failure` (plain data: kind, type_name, message, traceback, pid, hostname,
    node) and `log`, the trial's directory. The user's own exception class is not rebuilt: its name
    is `failure.type_name`.
    """

    def __init__(self, trial_id: str, failure: Failure, log: str = "") -> None:
        where = f" (logs: {log})" if log else ""
        place = f" {failure.on_node}" if failure.node else ""
        text = f"trial {trial_id} failed{place}: {failure.headline}{where}"
        super().__init__(f"{text}\n\n{failure.traceback}" if failure.traceback else text)
        self.trial_id = trial_id
        self.failure = failure
        self.log = log

    def __reduce__(self) -> tuple[type[TrialError], tuple[str, Failure, str]]:
        return TrialError, (self.trial_id, self.failure, self.log)
