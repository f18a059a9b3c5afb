"""Lists what a tracker has not received at the end of a run.

Computed from the progress of the tracker and of each trial. So it takes no longer if more is
missing, and needs no process that could have died.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.experiment.trackers.delivery import Account, Mark, decode_accounts, shown_range
from holdfast.experiment.trackers.job import TrackerJob
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.stores.plain_files import read_json
from holdfast.trial.trial import Trial


def list_missing(job: TrackerJob, trials: Iterable[Trial]) -> str:
    """Write the list to its file, or remove the file if nothing is missing. Returns the list as
    text.

    The tracker process must have ended.
    """
    try:
        data = read_json(job.layout.tracker_cursor(job.file))
        accounts = decode_accounts(data, job.experiment_id)
    except (OSError, ValueError):
        accounts = {}  # then the next tracker process sends everything again
    missing = list(undelivered(accounts, trials))
    path = job.layout.undelivered(job.file)
    with suppress(OSError):  # the returned text says it, too
        if missing:
            text = json.dumps({"tracker": job.name, "undelivered": missing}, indent=1)
            write_atomic(path, text.encode())
        else:
            path.unlink(missing_ok=True)
    return as_text(missing)


def undelivered(
    accounts: Mapping[str, Account], trials: Iterable[Trial]
) -> Iterator[dict[str, Any]]:
    """For each trial, the iterations that the tracker has not acknowledged, or refused, and
    why."""
    for trial in trials:
        account = accounts.get(trial.trial_id, Account())
        mark = account.delivered
        iterations = list(_behind(mark, trial))
        is_end_due = trial.status.is_final and not mark.is_end
        if iterations or account.refused or is_end_due or trial.attempt > mark.attempt:
            yield {
                "trial": trial.trial_id,
                "name": trial.spec.name,
                "iterations": iterations,
                "refused": [{"iterations": str(s), "why": s.why} for s in account.refused],
                "only_its_end": not iterations and not account.refused,
            }


def _behind(mark: Mark, trial: Trial) -> Iterator[str]:
    """The iterations after a mark. The trial does not know how far earlier attempts came."""
    of = f" (attempt {trial.attempt})" if trial.attempt > 1 else ""
    first = mark.iteration + 1
    if mark.attempt < trial.attempt:
        first = trial.resumed_from + 1
        if mark.attempt and not mark.is_end:
            yield f"{mark.iteration + 1} and later (attempt {mark.attempt})"
        between = mark.attempt + 1, trial.attempt - 1
        if between[0] <= between[1]:
            yield f"all (attempt {shown_range(*between)})"
    if first <= trial.iteration:
        yield f"{shown_range(first, trial.iteration)}{of}"


def as_text(missing: Sequence[Mapping[str, Any]], limit: int = 5) -> str:
    """The list as one line of text."""
    parts = []
    for trial in missing[:limit]:
        spans = [*trial["iterations"], *(refused["iterations"] for refused in trial["refused"])]
        shown = ", ".join(spans[:limit]) + (" ..." if len(spans) > limit else "")
        parts.append(f"{trial['name']}: {'iterations ' + shown if spans else 'its start or end'}")
    rest = f"; and {len(missing) - limit} other trials" if len(missing) > limit else ""
    return "; ".join(parts) + rest
