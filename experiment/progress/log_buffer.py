"""A bounded buffer for the lines that trials print; it counts the lines that it drops."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from holdfast.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedLines:
    """`lines` with their prefixes, oldest first; `skipped` counts the earlier lines dropped, by
    prefix."""

    skipped: Mapping[str, int]
    lines: Sequence[tuple[str, str]]


class LogBuffer:
    """Holds the newest `most` lines until they are taken; older ones are only counted.

    One thread may fill it while another empties it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._lines: deque[tuple[str, str]] = deque()
        self._skipped: Counter[str] = Counter()

    def put(self, prefix: str, line: str) -> None:
        with self._lock:
            if len(self._lines) == self._most:
                self._skipped[self._lines.popleft()[0]] += 1
            self._lines.append((prefix, line))

    def skip(self, prefix: str, count: int) -> None:
        """Count lines that were dropped on their way here."""
        with self._lock:
            self._skipped[prefix] += count

    @property
    def is_empty(self) -> bool:
        return not self._lines and not self._skipped

    def take(self) -> BufferedLines:
        """Take all lines since the last call."""
        with self._lock:
            taken = BufferedLines(skipped=self._skipped, lines=self._lines)
            self._skipped, self._lines = Counter(), deque()
        return taken
