"""The base class of stop conditions that a dict of bounds cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.described import Described


class Stopper(Described):
    """Decides after each report whether its trial, or every trial, ends.

    Subclass it and override both methods. They run in a thread of the script's process, outside
    the control loop and with a deadline. If one raises, the trial that reported fails.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """True ends the trial that reported `result`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def stop_all(self) -> bool:
        """True ends the whole experiment; called after each report."""
        return False


def reaches(row: Mapping[str, Any], criteria: Mapping[str, float]) -> str | None:
    """The first key of `criteria` whose bound `row` has reached; None if there is none.

    A number is reached when `row[key] >= bound`, True by a true value.
    """
    for key, bound in criteria.items():
        value = lookup(row, key)
        if not isinstance(value, (int, float)):
            continue
        if (bool(value) is bound) if isinstance(bound, bool) else value >= bound:
            return key
    return None


def lookup(row: Mapping[str, Any], key: str) -> Any:
    """`row[key]`, or the nested value that `a/b` names; None if it is missing."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
