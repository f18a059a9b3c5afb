"""Which recorded config is the most like another one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WIDE = 100.0


class Nearest:
    """Configs with what they stand for.

    Two configs are as far from each other as the root of the sum of squares over their
    parameters: numbers by their share of the range that is known, as logarithms where that is
    positive and spans a factor of 100 or more; anything else 0 if equal, else 1.
    """

    def __init__(self, known: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        self._known = [(dict(_flat(config)), name) for config, name in known]
        keys = {key for config, _ in self._known for key in config}
        self._scales = {key: self._scale(key) for key in sorted(keys)}
        self._found: dict[str, str] = {}

    def find(self, config: Mapping[str, Any]) -> str:
        """The name of the nearest; of several the first. Raises ValueError where there is none."""
        flat = dict(_flat(config))
        text = repr(sorted(flat.items()))
        if text not in self._found:
            self._found[text] = min(self._known, key=lambda one: self._distance(flat, one[0]))[1]
        return self._found[text]

    def _scale(self, key: str) -> tuple[float, float, bool] | None:
        """Least and range of a parameter that is a number everywhere, and if by logarithms."""
        values = [number(config[key]) for config, _ in self._known if key in config]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values) or not numbers:
            return None
        least, most = min(numbers), max(numbers)
        is_wide = least > 0 and most / least >= _WIDE
        if is_wide:
            least, most = math.log(least), math.log(most)
        return least, (most - least) or 1.0, is_wide

    def _distance(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return math.hypot(*(self._apart(key, one, other) for key in self._scales))

    def _apart(self, key: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        scale = self._scales[key]
        here, there = number(one.get(key)), number(other.get(key))
        if scale is None or here is None or there is None:
            return float(one.get(key) != other.get(key))
        _, span, is_wide = scale
        if is_wide:
            here, there = math.log(max(here, 1e-300)), math.log(max(there, 1e-300))
        return (here - there) / span


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}/")
        else:
            yield f"{above}{key}", value


def number(value: object) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
