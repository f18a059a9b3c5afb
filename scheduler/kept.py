"""Whether a snapshot has an attribute of the machine, and under which name.

The annotations in the bodies of `State`, `Placement` and `Expected` say so: a snapshot has every
attribute but those that are `NotKept`.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from holdfast.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`name`: what a snapshot calls the attribute, "" for its own name.

    A `rare` one is left out while it is empty, 0 or False. One that is `late` may be missing in a
    snapshot of an older version; it then has the value of a new machine.
    """

    name: str = ""
    rare: bool = False
    late: bool = False


class _Mark:
    """Told apart by identity."""


NOT_KEPT: Final = _Mark()
REFERS: Final = _Mark()

# Another attribute says the same, or it does not outlive an event.
NotKept = Annotated[T, NOT_KEPT]
Rare = Annotated[T, Kept(rare=True)]
# As a key or a member: a snapshot that refers to a trial that it does not have is refused.
TrialId = Annotated[str, REFERS]
