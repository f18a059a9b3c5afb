"""The values that a field may hold, beyond its type. `holdfast.trial.decoding` enforces them.

A field without a bound holds what both MessagePack and JSON can: integers of 64 bits and finite
floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from holdfast.dataclass import dataclass
from holdfast.names import folder_name, node_name, plain_name

# The last second of the year 9999, the latest that `datetime` supports.
LATEST_S = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both included. NaN is outside."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Named:
    """Text that names a file or a folder; `check` raises ValueError for anything else."""

    check: Callable[[object, str], str]


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that looks different in a record.

    `read` makes the value from plain data and raises ValueError, TypeError or KeyError; `write`
    makes plain data from the value (None: the value is plain). With `of`, `read` is given what a
    field of that type holds.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    of: Any = None


class _Mark:
    """A marker without a value, compared by identity."""


T = TypeVar("T")
SPARSE: Final = _Mark()
# A field that a record has only if its value is not the default. A record without such values is
# as an older version wrote it, and can read it.
Sparse = Annotated[T, SPARSE]
# A number of things, or the index of one.
Count = Annotated[int, Between(0, 1 << 53)]
# An index up to which a restore loops, such as that of a trial's newest checkpoint.
Ordinal = Annotated[int, Between(0, 10_000_000)]
# Seconds since 1970.
Moment = Annotated[float, Between(0, LATEST_S)]
# A limit; infinity means no limit.
Limit = Annotated[float, Between(-math.inf, math.inf)]
PlainName = Annotated[str, Named(plain_name)]
# The name of a node; "" for the controller's machine.
NodeName = Annotated[str, Named(node_name)]
FolderName = Annotated[str, Named(folder_name)]

INTEGER = Between(-(1 << 63), (1 << 64) - 1)
FINITE = Between(-1.7976931348623157e308, 1.7976931348623157e308)


def in_words(bound: Between, *, whole: bool) -> str:
    """The values that `bound` allows, in words for an error message."""
    kind = "a whole number" if whole else "a number"
    if bound == INTEGER:
        return f"{kind} of at most 64 bits"
    if bound == FINITE:
        return f"a finite {kind[2:]}"
    if bound == Between(-math.inf, math.inf):
        return kind
    return f"{kind} from {bound.low:,} to {bound.high:,}"
