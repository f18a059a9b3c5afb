"""The seam for stop conditions that a dict of bounds cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.described import Described


class Stopper(Described):
    """Decides after each report whether its trial, or every trial, ends.

    Subclass it and override both methods. They run in a thread of the script's process, off the
    control loop, with a deadline; an exception in them fails the trial that reported.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """True ends the trial that reported `result`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def stop_all(self) -> bool:
        """True ends the whole experiment; asked after each report."""
        return False


def reaches(row: Mapping[str, Any], criteria: Mapping[str, float]) -> str | None:
    """The first key of `criteria` that `row` has reached, or None.

    A number is reached from below (`row[key] >= bound`); True is reached by a true value.
    """
    for key, bound in criteria.items():
        value = lookup(row, key)
        if not isinstance(value, (int, float)):
            continue
        if (bool(value) is bound) if isinstance(bound, bool) else value >= bound:
            return key
    return None


def lookup(row: Mapping[str, Any], key: str) -> Any:
    """`row[key]`, or the nested value that `a/b` means; None where there is none."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
