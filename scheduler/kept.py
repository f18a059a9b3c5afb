"""Annotations that say which attributes of the machine a snapshot contains, and by which names.

`State`, `Placement` and `Expected` use them. A snapshot contains every attribute that is not
`NotKept`.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from holdfast.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How a snapshot stores an attribute.

    `name` is its name there, "" for the attribute's own. A `rare` attribute is left out while it
    is empty, 0 or False.
    """

    name: str = ""
    rare: bool = False


class _Mark:
    """A marker without a value, compared by identity."""


NOT_KEPT: Final = _Mark()
REFERS: Final = _Mark()

# For attributes that are derived from others, or that last only for one event.
NotKept = Annotated[T, NOT_KEPT]
Rare = Annotated[T, Kept(rare=True)]
# A key or a member that must be the id of a trial in the snapshot; a snapshot with another id is
# refused.
TrialId = Annotated[str, REFERS]
