"""Names what makes a stored object large, before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.experiment.progress.wording import size
from holdfast.experiment.user_objects.pickling import parts_of, pickled_size
from holdfast.experiment.user_objects.stored_objects import StoredField

# About 10 ms to write, and seconds to upload on a slow line.
LARGE_BYTES: Final = 10_000_000
_DEPTH: Final = 4


def large_parts(fields: Mapping[str, StoredField], values: Mapping[str, Any]) -> list[str]:
    """A message for each field that is large, which names the part of its value that is.

    `values` are the objects that `fields` store.
    """
    found = []
    for name, field in fields.items():
        amount = len(field.objects or b"") + len(field.pickled or b"")
        if amount >= LARGE_BYTES and name in values:
            what = "the trainable" if name == "trainable" else name
            path = _largest(values[name], what, amount)
            found.append(
                f"{path} is large: tuner.pkl holds {size(amount)} for it, is written before the "
                f"first trial, and is read by each restore. Load the data in the trainable, or "
                f"pass holdfast.put(data) and call holdfast.get() there"
            )
    return found


def _largest(value: object, path: str, amount: int, depth: int = _DEPTH) -> str:
    """The path to the innermost part that takes most of the `amount` bytes."""
    if depth:
        for name, part in parts_of(value):
            if (of_part := pickled_size(part)) > amount / 2:
                return _largest(part, f"{path}{name}", of_part, depth - 1)
    return path
