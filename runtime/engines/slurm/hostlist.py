"""Slurm's lists of hosts: `n[1-3,07],gpu-[1-2]x[a]`. Pure: no I/O."""

from __future__ import annotations

import re
from itertools import product

_PART = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 100_000


def hosts_in(text: str) -> list[str]:
    """The names in a list. Raises ValueError."""
    return [name for one in _split(text) for name in _expanded(one)]


def _split(text: str) -> list[str]:
    """The parts between the commas that are not in brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text.strip()) if part]


def _expanded(text: str) -> list[str]:
    choices, end = [], 0
    while end < len(text):
        found = _PART.match(text, end)
        if found is None or found.end() == end:
            raise ValueError(f"{text!r:.200} is not a list of hosts")
        choices.append(
            [found[1]] if found[2] is None else [found[1] + n for n in _range(found[2])]
        )
        end = found.end()
    return ["".join(parts) for parts in product(*choices)]


def _range(text: str) -> list[str]:
    """The numbers of `1-3,07`, with as many digits as the first one has."""
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"[{text:.200}] is not a range of hosts")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 0 <= last - first < _MOST:
            raise ValueError(f"[{text:.200}] is not a range of hosts")
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return numbers
