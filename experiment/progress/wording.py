"""The wording that all views of a run share: failures, retries, nodes, storage and the end."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import ERROR, STDERR, STDOUT, log_names_of, rank_log
from holdfast.experiment.progress.summary import (
    FailedTrial,
    NodesSummary,
    RankWait,
    StorageAge,
    Summary,
    TrialRow,
)
from holdfast.names import listed
from holdfast.runtime.launcher import short_cause
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.events import Event, Exited, ExperimentSpec, Raised, StopperAnswered
from holdfast.scheduler.failing import budget_of, limit_of, wait_s
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.placement import WaitsFor
from holdfast.text.trials import start_text, states_text, unread_text
from holdfast.text.values import counted, duration, format_value, size, values_text
from holdfast.trial.best import LEAST_RUNS, Confirmed
from holdfast.trial.errors import OF_THE_PROCESS, Failure, lost_worker
from holdfast.trial.resources import NodeKind
from holdfast.trial.trial import CheckpointRecord, Status, Trial

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)', re.M)
# In a checkout, holdfast's own files are in none of the other places.
_OURS = os.path.join(Path(__file__).parents[2], "")
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "<frozen", _OURS)
# What `rank_failures.cause_of` puts before the message of a rank.
_RANK = re.compile(r"^rank (\d+)\b")
_AFTER_IT = "\n\nAfter it, rank"


def user_frame(failure: Failure) -> str:
    """`train.py:42 in train`: the innermost frame outside of installed libraries and holdfast, or
    of such a library if there is none. "" if all are holdfast's: the message says more."""
    first = failure.traceback.partition(_AFTER_IT)[0]
    frames = list(_FRAME.finditer(first))
    own = [frame for frame in frames if not any(mark in frame["file"] for mark in _LIBRARY)]
    others = own or [frame for frame in frames if not is_holdfast_file(frame["file"])]
    if not others:
        return ""
    frame = others[-1]
    return f"{frame['file'].rpartition('/')[2]}:{frame['line']} in {frame['name']}"


def is_holdfast_file(file: str) -> bool:
    """True if code in this file is holdfast's."""
    return file.startswith(_OURS)


def logs_of(failure: Failure, names: tuple[str, str] = (STDOUT, STDERR)) -> tuple[str, str]:
    """The file in the trial's folder with the most information, and where to look if it is empty
    ("" for nowhere).

    error.txt has the traceback. A process that was killed leaves none, but its output has its last
    lines. `names` are those of stdout and stderr.
    """
    if failure.kind not in OF_THE_PROCESS:
        return ERROR, ""
    found = _RANK.match(failure.message)
    rank = int(found[1]) if found else 0
    out, err = (rank_log(name, rank) if rank else name for name in names)
    return err, out if out != err else ""


def path_of(below: str, here: str, stored: str, *, on_node: bool) -> str:
    """The path of a file of a trial, by its path inside the experiment: `here` is the experiment's
    folder on this machine, `stored` its place. The output of a trial on a node is only there."""
    if not (below and on_node) or stored in ("", here) or below.endswith(f"/{ERROR}"):
        return below and f"{here}/{below}"
    base, mark, query = stored.partition("?")
    return f"{base}/{below}{mark}{query}"


def retry_way(failed: Iterable[Trial]) -> str:
    """The way failed trials run again: "resume" if one has a checkpoint, else "restart"."""
    return "resume" if any(trial.checkpoints for trial in failed) else "restart"


def retry_options(failed: Iterable[Trial], code: str = "") -> tuple[str, ...]:
    """The options of `holdfast resume` that run failed trials again: with the script's trainable
    that `code` names, or with the stored one."""
    return (f"--{retry_way(failed)}-errored", *(("--trainable", code) if code else ()))


def retry_advice(trials: Iterable[Trial]) -> str:
    """An addition to a command that resumes a run after a full disk: it also runs the
    trials that failed for it; "" if there are none."""
    failed = [trial for trial in trials if trial.error is not None and trial.error.is_no_room]
    failed = [trial for trial in failed if trial.status is Status.ERROR]
    if not failed:
        return ""
    count, they = (f"{len(failed)} trials", "them") if len(failed) > 1 else ("1 trial", "it")
    (option,) = retry_options(failed)
    return f" {option} ({count} failed because a disk was full; {option} runs {they} again)"


def cause(headline: str, where: str) -> tuple[str, str]:
    """A key that is equal for failures of one cause: numbers, as of processes and steps, are
    ignored."""
    return re.sub(r"\d+", "#", headline), where


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
    """True if the message is one of the first, or the 10th, 100th, 1,000th and so on."""
    return number <= _TOLD_EACH or (number >= 10 and _is_round(number))


def _is_round(number: int) -> bool:
    """True for 10, 100, 1,000 and so on."""
    return str(number).rstrip("0") == "1"


_SHOWN_NODES = 3
_SHOWN_WAITS = 2
_SHOWN_RANKS = 5
# Ranks wait for each other in every report: only waits that last longer are shown.
_LONG_WAIT_S = 5.0


def node_lines(summary: Summary) -> Iterator[str]:
    """`3 of 4 nodes, b leaves; c has left: its connection was closed`, and what the cluster waits
    for."""
    if summary.nodes is not None:
        yield _nodes_text(summary.nodes)
    if summary.waiting:
        yield summary.waiting


def node_count(here: int, most: int | None) -> str:
    """`3 of 4 nodes`, `1 node`."""
    of = "" if most is None else f" of {most:,}"
    word = "node" if (here if most is None else most) == 1 else "nodes"
    return f"{here:,}{of} {word}"


def _nodes_text(nodes: NodesSummary) -> str:
    parts = [node_count(nodes.here, nodes.most)]
    if nodes.leaving:
        verb = "leaves" if len(nodes.leaving) == 1 else "leave"
        parts.append(f"{listed(nodes.leaving, _SHOWN_NODES)} {verb}")
    text = ", ".join(parts)
    if not nodes.left:
        return text
    (newest, cause), *others = nodes.left
    left = f"{newest} has left{f': {short_cause(cause)}' if cause else ''}"
    before = f" (before it {listed([name for name, _ in others], _SHOWN_NODES)})" if others else ""
    return f"{text}; {left}{before}"


def wait_lines(summary: Summary) -> Iterator[str]:
    """The ranks for which others have waited long."""
    waits = [wait for wait in summary.waits if wait.waited_s > _LONG_WAIT_S]
    for wait in waits[:_SHOWN_WAITS]:
        yield _wait_text(wait)
    if len(waits) > _SHOWN_WAITS:
        more = counted(len(waits) - _SHOWN_WAITS, "trial", "trials")
        yield f"and ranks of {more} more wait"


def _wait_text(wait: RankWait) -> str:
    numbers = listed([str(rank) for rank in wait.ranks], _SHOWN_RANKS)
    ranks = f"{'rank' if len(wait.ranks) == 1 else 'ranks'} {numbers}"
    verb = "has" if len(wait.ranks) == 1 else "have"
    waited = duration(wait.waited_s)
    return f"{wait.name}: {ranks} {verb} not reported; the others have waited for {waited}"


def room_notice(
    spec: ExperimentSpec,
    capacity: Mapping[str, float],
    offer: Sequence[NodeKind],
    total: int | None,
) -> str:
    """A message if fewer trials can run at once than `spec.max_concurrent`, with the resource that
    is short; "" otherwise, and if that is not known.

    `total` is the number of trials, None without a limit.
    """
    if spec.max_concurrent is None:
        return ""
    asked = min(spec.max_concurrent, total or spec.max_concurrent)
    short = _shortage(spec, capacity, offer, asked)
    return f"{asked} trials may run at once, but {short}" if short else ""


def _shortage(
    spec: ExperimentSpec, capacity: Mapping[str, float], offer: Sequence[NodeKind], asked: int
) -> str:
    """`there is room for 2: each asks for 1 CPU, and ...`; "" if there is room for all."""
    have = _most_of(offer) if offer else dict(capacity)
    if spec.resources is None or have is None:
        return ""
    wanted = {name: most for name, most in spec.resources.least_resources.items() if most}
    fit = Capacity(have).room(wanted, asked)
    if fit == asked:
        return ""
    short = [name for name in wanted if Capacity(have).room({name: wanted[name]}, asked) == fit]
    needs = " and ".join(_amount(name, wanted[name]) for name in short)
    there = " and ".join(_amount(name, have.get(name, 0)) for name in short)
    where = "the cluster has at most" if offer else "this machine has"
    return (
        f"there is room for {fit}: each asks for {needs}, and {where} {there}. Ask for less in "
        f"tune.with_resources()"
        f"{'' if offer else ', or declare more in holdfast.init()'}"
    )


def _most_of(offer: Sequence[NodeKind]) -> dict[str, float] | None:
    """The sum of all nodes that may join; None if it is not known."""
    total: dict[str, float] = {}
    for kind in offer:
        if kind.most is None or kind.resources is None or kind.detects:
            return None
        for name, amount in kind.resources.items():
            total[name] = total.get(name, 0) + kind.most * amount
    return total


def _amount(name: str, amount: float) -> str:
    if name == "memory":
        return f"{size(amount)} of memory"
    return f"{amount:g} {name}{'s' * (amount != 1 and name in ('CPU', 'GPU'))}"


def short_of_room(machine: Machine, total: int | None) -> str:
    """`room_notice` for an experiment as it is."""
    placement = machine.placement
    return room_notice(machine.spec, placement.capacity.total, machine.cluster.offer, total)


def shortage(machine: Machine, asked: int) -> str:
    """`there is room for 2: ...` if fewer than `asked` trials of the experiment can run at once;
    "" otherwise, and if that is not known."""
    placement = machine.placement
    return _shortage(machine.spec, placement.capacity.total, machine.cluster.offer, asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNews:
    """Says that a trial is paused now which has run on, and that the run waits for a person.

    `resume` and `stop` are the commands for the experiment, without the names of trials.
    """

    resume: str
    stop: str

    def after(self, machine: Machine) -> list[str]:
        """The messages about the event that the machine has just handled."""
        waits = machine.placement.waits
        return [
            f"trial {trial_id} is paused at iteration {machine.trials[trial_id].iteration}"
            for trial_id, before in machine.moved.items()
            if waits.get(trial_id) is WaitsFor.PERSON and before.status is not Status.PENDING
        ]

    def waiting(self, machine: Machine) -> str:
        """`2 trials are paused: holdfast resume PATH TRIAL, or holdfast stop PATH`; "" unless only
        such trials are left."""
        if not machine.waits_for_person:
            return ""
        count = len(machine.placement.held)
        trials = "1 trial is" if count == 1 else f"{count:,} trials are"
        return f"{trials} paused: {self.resume} TRIAL, or {self.stop}"


_SHOWN_FAILURES = 3


def counts_text(summary: Summary) -> str:
    """`24 trials: 9 finished, 2 running, 13 not created yet, 4 retries`; a single trial's
    iteration."""
    retries = [counted(summary.retried, "retry", "retries")] if summary.retried else []
    if summary.total == 1 and summary.counts.get(Status.RUNNING):
        return ", ".join(["running", *_how_far(summary), *retries])
    states = _states(summary, ended=summary.done)
    head = f"{counted(summary.total, 'trial', 'trials')}: " if summary.total else ""
    return head + (", ".join([*filter(None, [states]), *retries]) or "no trials yet")


def _states(summary: Summary, *, ended: bool) -> str:
    return states_text(
        summary.counts,
        summary.not_created,
        ended=ended,
        is_live=not summary.done,
        reasons=summary.early,
        interrupted=summary.interrupted,
    )


def _how_far(summary: Summary) -> list[str]:
    row = next((row for row in summary.rows if row.status is Status.RUNNING), None)
    if row is None:
        return []
    of = f" of {row.last}" if row.last is not None else ""
    return [f"iteration {row.iteration}{of}"]


def workers_lines(before: Summary, now: Summary) -> Iterator[str]:
    """A line for each trial whose number of workers has changed."""
    known = {row.trial_id: row.workers for row in before.rows if row.workers}
    for row in now.rows:
        old = known.get(row.trial_id, row.workers)
        if row.workers and row.workers != old:
            yield f"{row.name} now has {row.workers} of {row.most_workers} workers (was {old})"


def best_text(summary: Summary) -> str:
    """The best value with its trial, iteration and parameters; empty if there is none."""
    best = summary.best
    if best is None:
        return ""
    params = values_text(best.params)
    at = f" at iteration {best.iteration}" if best.iteration else ""
    at = f" ({best.early}{at})" if best.early else at
    told = f" ({best.confirmation})" if best.confirmation else ""
    text = f"{best.metric}={format_value(best.value)} {best.name}{at}{told}"
    return f"{text}: {params}" if params else text


def confirmation_text(found: Sequence[Confirmed], spec: ExperimentSpec) -> str:
    """`0.208 to 0.218 in 3 fresh runs, 0.195 in the search; not shown better than trial a_00007`;
    "" if the experiment confirms nothing. `found` has the best config first."""
    if not spec.confirm and not found:
        return ""
    runs, wanted = found[0].runs if found else 0, max(spec.confirm, LEAST_RUNS)
    fresh = f"{runs} of {wanted} fresh runs" if runs < wanted else f"{runs} fresh runs"
    if not found or (best := found[0]).mean is None:
        return f"not confirmed: {fresh}"
    low, high, value = map(format_value, (best.low, best.high, best.value))
    tied = [one.trial_id for one in found if one.is_tied]
    which = " and ".join(part for part in (", ".join(tied[:-1]), *tied[-1:]) if part)
    more = f"; not shown better than trial{'s' * (len(tied) > 1)} {which}" if tied else ""
    for one in found:  # a failed run must not take a config out without a word
        if one.mean is None:
            more += f"; trial {one.trial_id} has {one.runs} of {wanted} fresh runs"
    return f"{low} to {high} in {fresh}, {value} in the search{more}"


def time_text(summary: Summary) -> str:
    """`1m 20s, about 2m 10s left`."""
    elapsed = duration(summary.elapsed_s)
    if summary.left_s is None or summary.done:
        return elapsed
    return f"{elapsed}, about {duration(summary.left_s)} left"


def failure_text(failure: FailedTrial) -> str:
    """`t_00004 failed on node a at train.py:42 in train: ValueError: bad`."""
    where = _where(failure)
    retries = f" after {counted(failure.retries, 'retry', 'retries')}" if failure.retries else ""
    verb = f"failed{retries}" if failure.final else "will be retried; it failed"
    return f"{failure.name} {verb}{where}: {format_value(failure.headline, 300)}"


def retry_text(retry: Retry, number: int, folder: str, stored: str = "") -> str:
    """`t_00004 failed at train.py:42 in train: ValueError: bad. Retrying: attempt 2 of 3, from
    checkpoint_000003 (iteration 4)`, with the log below. `number` counts retries of this cause.
    `folder` is the experiment's on this machine, `stored` its place if that is elsewhere."""
    where = _where(retry)
    verb = f"Retrying in {duration(retry.wait_s)}" if retry.wait_s else "Retrying"
    of = "" if retry.most is None else f" of {retry.most}"
    attempt = f"attempt {retry.attempt}{of}" if retry.attempt else "not counted as a failure"
    start = start_text(retry.checkpoint) + ", if storage has it" * retry.may_be_lost
    alike = f" This is retry {number} with this cause; not every one is shown" * (number > 3)
    log, other = (
        path_of(below, folder, stored, on_node=bool(retry.node))
        for below in (retry.log, retry.other_log)
    )
    return (
        f"{retry.name} failed{where}: {format_value(retry.headline, 300)}. "
        f"{verb}: {attempt}, from {start}.{alike}\n  {pointer(log, other, node=retry.node)}"
    )


def _where(failed: FailedTrial | Retry) -> str:
    node = f" {failed.node}" if failed.node else ""
    return f"{node} at {failed.where}" if failed.where else node


def failure_lines(summary: Summary, *, logs: bool = True) -> Iterator[str]:
    """The first causes, each with its place in the code and, with `logs`, its log."""
    groups = _grouped(summary.failures)
    for failure, count in groups[:_SHOWN_FAILURES]:
        alike = f" (and {counted(count - 1, 'more trial', 'more trials')})" if count > 1 else ""
        yield failure_text(failure) + alike
        if logs:
            yield f"  {pointer(failure.error_file, failure.other_file, node=failure.node)}"
    if len(groups) > _SHOWN_FAILURES:
        yield f"  and {counted(len(groups) - _SHOWN_FAILURES, 'other cause', 'other causes')}"


def first_failures(summary: Summary) -> Iterator[FailedTrial]:
    """The first trial of each cause that has failed for good since the run began or resumed."""
    new = [failure for failure in summary.failures if failure.final and not failure.is_earlier]
    return (failure for failure, _ in _grouped(new))


def _grouped(failures: Sequence[FailedTrial]) -> list[tuple[FailedTrial, int]]:
    """The first failure of each cause, with the number of failures."""
    groups: dict[tuple[str, str], list[FailedTrial]] = {}
    for failure in failures:
        groups.setdefault(cause(failure.headline, failure.where), []).append(failure)
    return [(group[0], max(len(group), group[0].of_cause)) for group in groups.values()]


def storage_text(summary: Summary) -> str:
    """The age of what waits, and the upload in progress; empty if storage has everything."""
    storage = summary.storage
    if storage is None:
        return ""
    parts, upload = [_age_text(storage)], storage.upload
    if upload is not None:
        parts += [f"{upload.name} {size(upload.done_bytes)} of {size(upload.total_bytes)}"]
    return "; ".join(filter(None, [*parts, storage.trouble]))


def _age_text(storage: StorageAge) -> str:
    if not storage.oldest_s:
        return ""
    age = f"the oldest for {duration(storage.oldest_s)}"
    late = ", too long: storage is slow or does not answer" * storage.is_late
    if not storage.checkpoints:
        ago = f"storage has everything up to {duration(storage.oldest_s)} ago"
        return f"{ago}{late}" if not storage.trouble else ago
    number = counted(storage.checkpoints, "checkpoint", "checkpoints")
    files = counted(storage.files, "file", "files")
    verb = "waits" if storage.checkpoints == 1 else "wait"
    text = f"{number} ({files}, {size(storage.pending_bytes)}) {verb} for storage, {age}"
    return text if storage.trouble else f"{text}{late}"


def hidden_text(summary: Summary, shown: Sequence[TrialRow] | None = None) -> str:
    """`14 more: 9 finished, 5 queued`; empty if all trials are shown.

    `shown` are those of the summary's rows that the table has, by default all.
    """
    rows = summary.rows if shown is None else shown
    hidden = Counter(summary.hidden) + Counter(row.status for row in summary.rows)
    hidden -= Counter(row.status for row in rows)
    early = Counter(summary.early) - Counter(row.early for row in rows if row.early)
    number = hidden.total()
    return f"{number} more: {states_text(hidden, reasons=early)}" if number else ""


def left_out_text(params: int) -> str:
    """`2 more parameters do not fit here`; empty for 0."""
    number = counted(params, "more parameter does", "more parameters do")
    return f"{number} not fit here" if params else ""


def closing_text(summary: Summary) -> str:
    """`24 trials in 1m 20s: 22 finished, 1 failed, 1 not created`."""
    known = sum(summary.counts.values())
    number = counted(known + summary.not_created, "trial", "trials")
    states = _states(summary, ended=True)
    return f"{number} in {duration(summary.elapsed_s)}" + (f": {states}" if states else "")


def closing_lines(summary: Summary) -> list[str]:
    """The lines below the last table; an empty line has nothing to show."""
    return [
        hidden_text(summary),
        *failure_lines(summary),
        f"best {best_text(summary)}" if summary.best else "",
        summary.scheduler,
        silent_text(summary.silent),
        unread_text(summary.unread),
        storage_text(summary) if _has_unsaved(summary) else "",
        f"{closing_text(summary)}. Results: {summary.path}",
    ]


def silent_text(count: int) -> str:
    """A note about trials without any report: usually a missing call."""
    if not count:
        return ""
    trials = counted(count, "trial", "trials")
    return (
        f"{trials} finished without a report: did they call report()? A dict of metrics may also "
        f"be returned; another value, such as a tuple, is not reported"
    )


def _has_unsaved(summary: Summary) -> bool:
    storage = summary.storage
    return storage is not None and bool(storage.checkpoints or storage.upload or storage.trouble)


def pointer(log: str, other: str = "", *, node: str = "") -> str:
    """`see LOG`; if that file is empty, the trial's `other` output, or a note that there is none.

    The stderr of a process that was killed is often empty. What was printed on a `node` comes
    later; of a node that is gone, nothing comes any more.
    """
    if not _is_empty(log):
        return f"see {log}"
    name = os.path.basename(log)
    if other and not _is_empty(other):
        return f"its {name} is empty, see {other}"
    if node:
        return f"see {log}, which has what its node sends of it"
    if name == ERROR:
        return f"its {name} is empty"
    return f"it printed nothing to {name}" + (f" and {os.path.basename(other)}" if other else "")


def _is_empty(path: str) -> bool:
    """False for a file that is not on this machine."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False
