"""The wording that all views share: numbers, times, states and failures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from holdfast.experiment.folder.layout import ERROR
from holdfast.experiment.progress.failure_text import cause, path_of
from holdfast.experiment.progress.retry_messages import Retry
from holdfast.experiment.progress.summary import FailedTrial, StorageAge, Summary, TrialRow
from holdfast.experiment.progress.text_width import cut
from holdfast.experiment.worker.command.protocol import unread_text
from holdfast.names import printable
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.trial import Status, StopReason
from holdfast.trial.values import READ_BITS, whole_text

# The order in which states are listed everywhere.
_WORDS = {
    Status.TERMINATED: "finished",
    Status.ERROR: "failed",
    Status.RUNNING: "running",
    Status.STARTING: "starting",
    Status.STOPPING: "stopping",
    Status.PAUSED: "paused",
    Status.PENDING: "queued",
}
_SHOWN_FAILURES = 3


def duration(seconds: float) -> str:
    """`0.4s`, `12s`, `1m 20s`, `3h 05m`, `2d 04h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def size(amount_bytes: float) -> str:
    """`812 B`, `12.3 kB`, `12.3 MB`: powers of 1000."""
    amount, unit = float(amount_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.95 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def format_value(value: object, width: int = 20) -> str:
    """A value for a table: numbers with four digits, texts cut to `width` columns."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return cut(printable(" ".join(str(value).split())), width)
    if isinstance(value, int) and abs(value) < 10**12:
        return str(value)
    if isinstance(value, int) and value.bit_length() > READ_BITS:
        return format_value(whole_text(value), width)
    return f"{value:.4g}"


def format_cell(value: object, width: int = 20) -> str:
    """`format_value`, with an empty cell for None."""
    return "" if value is None else format_value(value, width)


def param_cell(params: Mapping[str, object], name: str, width: int = 20) -> str:
    """A parameter for a table: empty if the config does not have it, `None` if it is None."""
    return format_value(params[name], width) if name in params else ""


def printed(text: str) -> list[str]:
    """The lines as a terminal shows them: a progress bar returns to the start and overwrites
    itself."""
    lines = text.removesuffix("\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def skipped_text(count: int) -> str:
    """`... 12 lines not shown here, see its stdout and stderr files`."""
    return f"... {counted(count, 'line', 'lines')} not shown here, see its stdout and stderr files"


def states_text(
    counts: Mapping[Status, int],
    not_created: int = 0,
    *,
    ended: bool = False,
    is_live: bool = True,
    reasons: Mapping[StopReason, int] | Mapping[str, int] = MappingProxyType({}),
    interrupted: int = 0,
) -> str:
    """`8 finished, 2 pruned, 1 failed, 2 running, 3 queued, 10 not created yet`.

    `reasons` counts the trials that have ended by reason. Unless the run `is_live`, the trials
    that had a worker are `interrupted`, and so are those that had begun and wait again:
    `interrupted` counts all that had begun and have not ended.
    """
    words, known = Counter[str](), {str(reason): n for reason, n in reasons.items()}
    early = {reason.value: known.get(reason, 0) for reason in StopReason if reason.is_early}
    for status, word in _WORDS.items():
        words[word if is_live or not status.has_worker else "interrupted"] += counts.get(status, 0)
        if status is Status.TERMINATED:
            words[word] -= sum(early.values())
            words.update(early)
    if not is_live:
        again = interrupted - words["interrupted"] - words["paused"]
        words["interrupted"] += again
        words["queued"] -= again
    parts = [f"{count} {word}" for word, count in words.items() if count]
    later = "not created" if ended else "not created yet"
    return ", ".join([*parts, *[f"{not_created} {later}"] * bool(not_created)])


def state_word(status: Status, reason: str | None) -> str:
    """`queued`, `running`, `finished`, `pruned`: the word of a trial in tables and counts.

    `reason` is that of a trial that was stopped or interrupted."""
    return reason if reason and status is not Status.PAUSED else _WORDS[status]


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
    text = f"{best.metric}={format_value(best.value)} {best.name}{at}"
    return f"{text}: {params}" if params else text


def values_text(values: Mapping[str, object]) -> str:
    """`acc=0.9 loss=0.25`."""
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())


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


def start_text(checkpoint: CheckpointRecord | None = None) -> str:
    """`checkpoint_000003 (iteration 4)`; `the start` without a checkpoint."""
    if checkpoint is None:
        return "the start"
    return f"{checkpoint.dirname} (iteration {checkpoint.iteration})"


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


def counted(number: int, one: str, many: str) -> str:
    """`1 line`, `12 lines`."""
    return f"{number} {one if number == 1 else many}"


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
