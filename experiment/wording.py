"""How a run is put into words, alike in every view: numbers, times, states and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.experiment.summary import FailedTrial, Summary
from holdfast.trial.trial import Status
from holdfast.trial.values import READ_BITS, whole_text

_WORDS = {
    Status.RUNNING: "running",
    Status.STARTING: "starting",
    Status.STOPPING: "stopping",
    Status.PAUSED: "paused",
    Status.PENDING: "pending",
    Status.TERMINATED: "finished",
    Status.ERROR: "failed",
}
_SHOWN_FAILURES = 3
_SHOWN_UPLOADS = 2


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


def short(value: object, width: int = 20) -> str:
    """A value in a table: numbers with four digits, the beginning of a long text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = " ".join(str(value).split())
        return text if len(text) <= width else f"{text[: width - 1]}…"
    if isinstance(value, int) and abs(value) < 10**12:
        return str(value)
    if isinstance(value, int) and value.bit_length() > READ_BITS:
        return short(whole_text(value), width)
    return f"{value:.4g}"


def printed(text: str) -> list[str]:
    """The lines as they look once printed: a progress bar goes back and overwrites itself."""
    lines = text.removesuffix("\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def skipped_text(count: int) -> str:
    """`... 12 lines not shown here, see its stdout and stderr files`."""
    return f"... {_times(count, 'line', 'lines')} not shown here, see its stdout and stderr files"


def counts_text(summary: Summary) -> str:
    """`9/24 done, 2 running, 13 pending, 1 failed`."""
    total = f"{summary.finished}/{summary.total}" if summary.total else f"{summary.finished}"
    waiting = dict(summary.counts)
    if summary.total and not summary.done:
        known = sum(waiting.values())
        waiting[Status.PENDING] = waiting.get(Status.PENDING, 0) + max(0, summary.total - known)
    parts = [
        f"{waiting[status]} {word}"
        for status, word in _WORDS.items()
        if status is not Status.TERMINATED and waiting.get(status)
    ]
    return ", ".join([f"{total} done", *parts])


def best_text(summary: Summary) -> str:
    """The best value with its trial and parameters, empty while there is none."""
    best = summary.best
    if best is None:
        return ""
    params = " ".join(f"{name}={short(value)}" for name, value in best.params.items())
    return f"{best.metric}={short(best.value)} {best.name} {params}".rstrip()


def time_text(summary: Summary) -> str:
    """`1m 20s, about 2m 10s left`."""
    elapsed = duration(summary.elapsed_s)
    if summary.left_s is None or summary.done:
        return elapsed
    return f"{elapsed}, about {duration(summary.left_s)} left"


def failure_text(failure: FailedTrial) -> str:
    """`t_00004 failed at train.py:42 in train: ValueError: bad`."""
    where = f" at {failure.where}" if failure.where else ""
    retries = f" after {_times(failure.retries, 'retry', 'retries')}" if failure.retries else ""
    verb = f"failed{retries}" if failure.final else "will be tried again, it failed"
    return f"{failure.name} {verb}{where}: {short(failure.headline, 300)}"


def failure_lines(summary: Summary) -> Iterator[str]:
    """The first causes, each with where it happened and where its log is."""
    groups = _grouped(summary.failures)
    for failure, count in groups[:_SHOWN_FAILURES]:
        alike = f" (and {_times(count - 1, 'trial', 'trials')} alike)" if count > 1 else ""
        yield failure_text(failure) + alike
        yield f"  see {failure.error_file}"
    if len(groups) > _SHOWN_FAILURES:
        yield f"  and {_times(len(groups) - _SHOWN_FAILURES, 'other cause', 'other causes')}"


def _grouped(failures: Sequence[FailedTrial]) -> list[tuple[FailedTrial, int]]:
    """Failures of one cause once, with how many there are, the first of each."""
    groups: dict[tuple[str, str], list[FailedTrial]] = {}
    for failure in failures:
        groups.setdefault((failure.headline, failure.where), []).append(failure)
    return [(group[0], len(group)) for group in groups.values()]


def storage_text(summary: Summary) -> str:
    """What is on its way to storage, empty where all is there."""
    storage = summary.storage
    if storage is None or not (storage.uploads or storage.pending_bytes or storage.trouble):
        return ""
    uploads = [
        f"{upload.name} {size(upload.done_bytes)}"
        + (f" of {size(upload.total_bytes)}" if upload.total_bytes is not None else "")
        for upload in storage.uploads[:_SHOWN_UPLOADS]
    ]
    more = len(storage.uploads) - len(uploads)
    uploads += [f"{more} more uploads"] if more else []
    age = f"{size(storage.pending_bytes)} not in storage yet, oldest {duration(storage.oldest_s)}"
    waits = storage.uploads or storage.pending_bytes or storage.oldest_s
    return "; ".join(filter(None, [age if waits else "", *uploads, storage.trouble]))


def hidden_text(hidden: Mapping[Status, int]) -> str:
    """`14 more: 9 finished, 5 pending`, empty where all trials are shown."""
    number = sum(hidden.values())
    parts = ", ".join(f"{count} {_WORDS[status]}" for status, count in hidden.items())
    return f"{number} more: {parts}" if number else ""


def closing_text(summary: Summary) -> str:
    """`24 trials in 1m 20s: 23 finished, 1 failed`."""
    ends_first = dict.fromkeys((Status.TERMINATED, Status.ERROR, *_WORDS))
    parts = ", ".join(
        f"{summary.counts[status]} {_WORDS[status]}"
        for status in ends_first
        if summary.counts.get(status)
    )
    number = _times(sum(summary.counts.values()), "trial", "trials")
    return f"{number} in {duration(summary.elapsed_s)}" + (f": {parts}" if parts else "")


def closing_lines(summary: Summary) -> list[str]:
    """What stands below the last table; empty where there is nothing to say."""
    return [
        hidden_text(summary.hidden),
        *failure_lines(summary),
        f"best {best_text(summary)}" if summary.best else "",
        storage_text(summary),
        f"{closing_text(summary)}. Results: {summary.path}",
    ]


def _times(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
