"""Reads rows from a trial's files whose records are lost.

If the first records of a journal are lost, the files that were written from them are all that
remains of these rows. They are read up to the state with which the journal begins, and kept.
"""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.syncer.files.tree import open_regular
from holdfast.trial.trial import Trial

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
