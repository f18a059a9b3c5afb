"""Rows: the user's metrics and the automatic ones of a report.

One row is one accepted report. `result.json` has one row per line; stop conditions, callbacks and
`Result.metrics` see the same dict. If the first records of a journal are lost, the files that were
written from them are all that remains of their rows (`rows_until`, `errors_until`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.syncer.files.tree import open_regular
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import readable

_ENTRY = re.compile(rb"^Attempt (\d+) failed at ", re.MULTILINE)


def rows_until(path: str, iteration: int) -> tuple[list[bytes], list[dict[str, Any]]]:
    """The lines of result.json up to this iteration, and their rows. Raises OSError."""
    lines, rows, newest = list[bytes](), list[dict[str, Any]](), 0
    for line in _read(path).splitlines(keepends=True):
        row = _row(line)
        number = row.get("training_iteration")
        if type(number) is not int or not newest < number <= iteration:
            break
        lines.append(line)
        rows.append(row)
        newest = number
    return lines, rows


def errors_until(path: str, trial: Trial) -> bytes:
    """The entries of error.txt about attempts that had failed by then. Raises OSError."""
    data, failed = _read(path), trial.attempt - trial.status.has_worker
    for entry in _ENTRY.finditer(data):
        if int(entry[1]) > failed:
            return data[: entry.start()]
    return data


def _row(line: bytes) -> dict[str, Any]:
    """The row of a line; empty if the line is torn or not a row."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        row = None
    return row if type(row) is dict else {}


def _read(path: str) -> bytes:
    try:
        with open_regular(path) as file:
            data: bytes = file.read()
    except FileNotFoundError:
        return b""
    return data


CONFIG = "config"
_NESTED = frozenset({dict, list, tuple, bytes})
# Metrics that every row has: the user's own are shown before them.
AUTOMATIC = frozenset(
    {
        "checkpoint_dir_name",
        "config",
        "date",
        "done",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "node_name",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "training_iteration",
        "trial_id",
    }
)


def result_row(trial: Trial, *, with_config: bool = True) -> dict[str, Any]:
    """The row of the trial's newest report.

    A user's metric overrides an automatic one of the same name, except `training_iteration` and
    `trial_id`, which other files refer to, and `done`, which is true once the trial is about to
    end.
    """
    metrics, checkpoint, place = trial.row or {}, trial.newest_checkpoint, trial.place
    has_checkpoint = checkpoint is not None and checkpoint.iteration == trial.iteration
    automatic = {
        "timestamp": int(trial.reported_at),
        "checkpoint_dir_name": checkpoint.dirname if checkpoint and has_checkpoint else None,
        "should_checkpoint": False,
        "done": False,
        "training_iteration": trial.iteration,
        "trial_id": trial.trial_id,
        "date": _date(int(trial.reported_at)),
        "time_this_iter_s": trial.time_this_iter_s,
        "time_total_s": trial.time_total_s,
        "pid": place.pid,
        "hostname": place.hostname,
        "node_ip": place.node_ip,
        **({"node_name": place.node} if place.nodes else {}),
        "time_since_restore": trial.time_total_s - trial.time_at_start_s,
        "iterations_since_restore": trial.iteration - trial.resumed_from,
    }
    # The user's keys first, but their values last: merging dicts is faster than a loop.
    row = {**metrics, **automatic, **metrics}
    row["training_iteration"] = trial.iteration
    row["trial_id"] = trial.trial_id
    row["done"] = metrics.get("done") is True or _is_ending(trial.status)
    if with_config and CONFIG not in row:
        row[CONFIG] = shown_config(trial.config)
    return row


def result_metrics(trial: Trial, row: Mapping[str, Any]) -> dict[str, Any]:
    """`Result.metrics`: the trial's newest row with its tag, its config and whether it ended."""
    return {
        CONFIG: shown_config(trial.config),
        **row,
        "done": row["done"] or trial.status.is_final,
        "experiment_tag": trial.spec.tag,
    }


def newest_row(trial: Trial) -> dict[str, Any]:
    """`result_metrics` of the trial as it is now."""
    return result_metrics(trial, result_row(trial))


def shown_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as JSON can hold it and as people read it: see `readable`."""
    shown: dict[str, Any] = readable(config)
    return shown


def params_text(shown: Mapping[str, Any]) -> str:
    """The content of params.json."""
    # One parameter per line: json's own indent uses its slow encoder, 25 us more per trial.
    lines = [f"  {encode(key)}: {encode(value)}" for key, value in shown.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def error_entry(attempt: int, failure: Failure, now: float) -> str:
    """The entry of one failure in error.txt."""
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))
    host = failure.hostname or "this machine"
    on = f"node {failure.node}, host {host}" if failure.node else host
    where = f", process {failure.pid} on {on}" * bool(failure.pid)
    parts = [f"Attempt {attempt} failed at {when} ({failure.kind}{where})", failure.headline]
    if failure.traceback:
        parts.append(failure.traceback.rstrip("\n"))
    return "\n".join(parts) + "\n\n"


def flatten_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row for progress.csv: `a/b` for nested dicts, other containers as JSON in a cell."""
    if _NESTED.isdisjoint(map(type, row.values())):
        return row
    return {
        name: encode(value) if isinstance(value, (dict, list, tuple)) else readable(value)
        for name, value in columns_of(row).items()
    }


def columns_of(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as `a/b` keys; lists and empty dicts stay values, as in Ray's tables."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and value:
            flat |= columns_of(value, f"{prefix}{key}/")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def tag_columns(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a run as columns of a table: `tag/data`."""
    return {f"tag/{name}": value for name, value in tags.items()}


def _is_ending(status: Status) -> bool:
    return status is Status.STOPPING or status.is_final


# One line of JSON, NaN and Infinity as Python's json writes them.
encode = json.JSONEncoder(default=readable).encode


# A thousand rows a second share one date: `localtime` and `strftime` together take 3 us.
@lru_cache(maxsize=16)
def _date(second: int) -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(second))
