"""The rows in a `result.json`: one JSON object per line, decoded only where they are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from holdfast.plain_numbers import is_number
from holdfast.schema import check_table
from holdfast.syncer.stores.store import parse_table
from holdfast.trial.errors import TuneError
from holdfast.trial.metrics import lookup

Row = dict[str, Any]

# A whole line with a number for this key. The quotes within a text are escaped, so a key with its
# quotes and colon is a key; it is of the outermost object if no other brace is before it.
_PLAIN = rb"^\{[^{}\n]*?%s: *(-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Infinity)|NaN) *[,}].*(?<=\})$"


class DamagedRows(TuneError, ValueError):
    """A trial's `result.json` has a line that is not a row; the message names file and line."""


class RowLines:
    """The complete lines of a `result.json`, oldest first; `shown` names the file in errors."""

    def __init__(self, data: bytes, shown: str) -> None:
        self._shown = shown
        whole = data if damaged_end(data) else data[: data.rfind(b"\n") + 1]  # the rest is coming
        self._data = whole
        self._lines = [line for line in whole.split(b"\n") if line]

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, at: int) -> Row:
        """The row at an index, also a negative one. Raises DamagedRows."""
        number = at + 1 + (len(self) if at < 0 else 0)
        return decode_row(self._lines[at], f"{self._shown}: line {number}")

    def rows(self) -> list[Row]:
        """All rows. Raises DamagedRows."""
        return [self.row(at) for at in range(len(self))]

    def numbers(self, metric: str) -> list[float | None]:
        """The value of `metric` (`a/b` for a nested one) in each row; None if it is not a number.

        A line is decoded only if its value is not plain to see: this takes a thirtieth of the time
        of `rows`. Raises DamagedRows for a line that it decodes.
        """
        plain = re.compile(_PLAIN % re.escape(json.dumps(metric).encode()), re.MULTILINE)
        found = plain.findall(self._data)
        if len(found) == len(self):
            return list(map(float, found))
        return [
            self._decoded(at, metric) if (seen := plain.match(line)) is None else float(seen[1])
            for at, line in enumerate(self._lines)
        ]

    def _decoded(self, at: int, metric: str) -> float | None:
        return numeric(self.row(at), metric)


def numeric(row: Mapping[str, Any], metric: str) -> float | None:
    """The value of `metric` (`a/b` for a nested one) as a number; None if there is none."""
    value = lookup(row, metric)
    return float(value) if is_number(value) else None


def decode_row(line: bytes, where: str) -> Row:
    """Raises DamagedRows."""
    try:
        row: Row = check_table(parse_table(line), "it")
    except ValueError as error:
        raise DamagedRows(
            f"{where} is not JSON ({error}). The journal has every row: restoring the experiment "
            "rewrites the file"
        ) from error
    return row


def damaged_end(data: bytes) -> bytes | None:
    """The bytes after the last complete line if they are damage: a power cut leaves zeros."""
    begun = data[data.rfind(b"\n") + 1 :]
    return begun if b"\0" in begun else None
