"""Messages about retries: the first of each cause is shown, later ones counted. Pure: no I/O."""

from __future__ import annotations

from collections import Counter

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import log_names_of
from holdfast.experiment.progress.failure_text import cause, logs_of, user_frame
from holdfast.scheduler.budgets import budget_of, limit_of, wait_s
from holdfast.scheduler.events import Event, Exited, ExperimentSpec, Raised, StopperAnswered
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.errors import Failure, lost_worker
from holdfast.trial.trial import Trial

# The first retries of each cause are shown, then the 10th, the 100th and so on.
_TOLD_EACH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A trial that has failed and is retried.

    It is attempt number `attempt` of the `most` (None: no limit) that its budget allows; both are
    0 if no budget was charged. It resumes from `checkpoint`; None for the beginning.
    `may_be_lost`: the checkpoint was on a node that is gone, and storage may not have it.
    `node` says where it failed: see `Failure.on_node`. It waits `wait_s` seconds first. `log` has
    the most information, `other_log` is where to look if that is empty ("" for nowhere); both are
    relative to the experiment's folder.
    """

    name: str
    headline: str
    where: str
    log: str
    attempt: int
    most: int | None
    checkpoint: CheckpointRecord | None
    wait_s: float
    may_be_lost: bool = False
    other_log: str = ""
    node: str = ""


def retry_of(
    event: Event | None, before: Trial | None, after: Trial | None, spec: ExperimentSpec
) -> Retry | None:
    """The retry that a change of a trial means; None if it means no retry.

    One event may fail an attempt and launch the next: then the trial no longer has its error.
    """
    if not isinstance(event, (Raised, Exited, StopperAnswered)):
        return None  # first, because this runs for every report
    if before is None or after is None or before is after or after.status.is_final:
        return None
    failure = _failure(event, before, after)
    if failure is None or not before.status.has_worker:
        return None
    if after.attempt == before.attempt and after.error is before.error:
        return None  # it was stopped, or ended with its run
    if after.shrunk_until != before.shrunk_until:
        return None  # it continues with one worker fewer, which the machine reports
    budget = budget_of(failure, spec.failure)
    limit = None if budget is None else limit_of(budget, spec.failure)
    is_waiting = after.attempt == before.attempt
    log, other = logs_of(failure, log_names_of(spec.options.get("log_to_file", False)))
    folder = after.spec.dirname
    return Retry(
        name=after.spec.name,
        headline=failure.headline,
        where=user_frame(failure),
        log=f"{folder}/{log}",
        other_log=f"{folder}/{other}" if other else "",
        attempt=0 if budget is None else budget.spent(after) + 1,
        most=0 if budget is None else None if limit in (None, -1) else limit + 1,
        checkpoint=after.newest_checkpoint,
        may_be_lost=_may_be_lost(event, before, after.newest_checkpoint),
        node=failure.on_node,
        wait_s=wait_s(after, spec.failure, spec.seed) if is_waiting and budget else 0.0,
    )


def _may_be_lost(event: Event, before: Trial, checkpoint: CheckpointRecord | None) -> bool:
    is_node_gone = isinstance(event, Exited) and bool(before.place.nodes)
    return is_node_gone and checkpoint is not None and not checkpoint.persisted


def _failure(
    event: Raised | Exited | StopperAnswered, before: Trial, after: Trial
) -> Failure | None:
    if not isinstance(event, Exited):
        return event.failure
    place = before.place
    # The machine knows whether the node had said that it would leave.
    kind = "preempted" if after.preemptions > before.preemptions else event.kind
    return lost_worker(kind, event.cause, pid=place.pid, hostname=place.hostname, node=place.node)


class Retries:
    """Decides which retries are shown, and counts all of them by cause."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    @property
    def total(self) -> int:
        return self._counts.total()

    def count(self, retry: Retry) -> tuple[int, bool]:
        """The number of retries with this cause so far, and whether to show this one."""
        key = cause(retry.headline, retry.where)
        self._counts[key] += 1
        number = self._counts[key]
        return number, is_shown(number)


def is_shown(number: int) -> bool:
    """Whether the message is one of the first, or the 10th, 100th, 1,000th and so on."""
    return number <= _TOLD_EACH or (number >= 10 and _is_round(number))


def _is_round(number: int) -> bool:
    """Whether it is 10, 100, 1,000 and so on."""
    return str(number).rstrip("0") == "1"
