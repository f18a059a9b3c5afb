"""error.txt, read back: how a trial failed whose records are not at hand."""

from __future__ import annotations

import re
from datetime import datetime
from typing import get_args

from holdfast.experiment.folder.trial_folder import Row, TrialFolder
from holdfast.trial.errors import Failure, FailureKind, TrialError

# <trainable>_<run>_<index>_<index>_<params>_<time>, as holdfast names a trial's directory.
DIRNAME = re.compile(
    r"_(?P<trial_id>[0-9a-f]{5}_\d{5,})_(?P<tag>\d+(?:_.*)?)_\d{4}(?:-\d\d){2}_\d\d(?:-\d\d){2}"
)
# What `holdfast.experiment.records.rows.error_entry` writes for each failure.
_FAILED = re.compile(
    r"^Attempt \d+ failed at (?P<at>[^(\n]+) \((?P<kind>\w+)"
    r"(?:, process (?P<pid>\d+) on (?P<host>.*))?\)$",
    re.M,
)
_TRACEBACK = "Traceback (most recent call last):\n"


def read_error(text: str, row: Row | None, folder: TrialFolder) -> TrialError | None:
    """The last failure of `error.txt`, None if the trial went on after it and reported.

    An attempt has a process of its own: the last row is of a later attempt if it is not older
    than the failure, and `error.txt` does not name the process that reported it.
    """
    entries = list(_FAILED.finditer(text))
    last = entries[-1] if entries else None
    if last is not None and row is not None:
        failed_at = datetime.strptime(last["at"], "%Y-%m-%d %H:%M:%S %z").timestamp()
        failed = {entry["pid"] for entry in entries}
        if str(row.get("pid")) not in failed and row.get("timestamp", 0) >= failed_at:
            return None
    body = text[last.end() :].strip() if last is not None else text.strip()
    headline, mark, frames = body.partition(_TRACEBACK)
    type_name, _, message = headline.strip().partition(": ")
    failure = Failure(
        kind=_kind_named(last["kind"]) if last else "user",
        type_name=type_name,
        message=message,
        traceback=mark + frames,
        pid=int(last["pid"]) if last and last["pid"] else None,
        hostname=(last["host"] or "") if last else "",
    )
    known = DIRNAME.search(folder.name)
    return TrialError(known["trial_id"] if known else folder.name, failure, folder.shown)


def _kind_named(text: str) -> FailureKind:
    """The user may have edited the file: "user" for what is not the name of a kind."""
    kinds: tuple[FailureKind, ...] = get_args(FailureKind)
    return next((kind for kind in kinds if kind == text), "user")
