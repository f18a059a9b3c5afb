"""JSON values: what an experiment contains, as a browser's JSON parser reads it. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.trial.values import readable, whole_text

# A text in a table, and one in the page of a trial. The whole text is in the files.
SHORT: Final = 200
LONG: Final = 10_000
# The leaves of a config or of metrics that a page shows.
MOST_LEAVES: Final = 2_000
# Fewer than the bits of the largest double.
_DOUBLE_BITS: Final = 1_000
_CUT: Final = "…"


def number(value: float) -> float | str:
    """A number; NaN and the infinities, which JSON lacks, as texts."""
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def shortened(text: str, most: int = LONG) -> str:
    return text if len(text) <= most else text[: most - 1] + _CUT


def json_value(value: Any, most: int = LONG) -> Any:
    """A readable value as JSON, with texts of at most `most` characters and at most 2,000
    leaves."""
    return _Counted(most).of(readable(value))


class _Counted:
    """Converts a value, and stops when it has converted enough."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = MOST_LEAVES

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return number(value)
        if kind is str:
            return shortened(value, self._most)
        if kind is int:
            # A browser's numbers are doubles; a larger one is shown whole, as text.
            return value if abs(value) <= 1 << 53 else str(value)
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for key, item in value.items():
                if not self._take():
                    found[_CUT] = f"{len(value) - len(found)} more"
                    break
                found[shortened(str(key), SHORT)] = self.of(item)
            return found
        if isinstance(value, (list, tuple)):
            items: list[Any] = []
            for item in value:
                if not self._take():
                    items.append(_CUT)
                    break
                items.append(self.of(item))
            return items
        return value

    def _take(self) -> bool:
        self._left -= 1
        return self._left >= 0


def cells(flat: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The first `most` numbers and short texts of a flat table, for columns."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        kind = type(value)
        if kind is float:
            value = number(value)
        elif kind is int:
            value = value if abs(value) <= 1 << 53 else _large(value)
        elif kind is str:
            value = shortened(value, SHORT)
        elif kind is not bool:
            continue
        found[shortened(name, SHORT)] = value
        if len(found) >= most:
            break
    return found


def _large(value: int) -> float | str:
    """A browser's numbers are doubles."""
    return (
        float(value) if value.bit_length() < _DOUBLE_BITS else shortened(whole_text(value), SHORT)
    )


def is_number(value: Any) -> bool:
    """Whether it is a number in a column: also NaN and the infinities."""
    return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")
