"""Limits how often the projector does work that can wait."""

from __future__ import annotations

from collections.abc import Callable

# The pause after the work, in multiples of the time that it took.
_REST = 30


class Pace:
    """A context manager around work that is due every `period_s`, the first time now if `at_once`.

    Slow work is due later, so that it takes at most a thirtieth of the time.
    """

    def __init__(
        self, period_s: float, clock: Callable[[], float], *, at_once: bool = False
    ) -> None:
        self._period_s = period_s
        self._clock = clock
        self._entered = 0.0
        self.due_at = clock() + (0.0 if at_once else period_s)

    @property
    def is_due(self) -> bool:
        return self._clock() >= self.due_at

    def __enter__(self) -> None:
        self._entered = self._clock()

    def __exit__(self, *_: object) -> None:
        now = self._clock()
        self.due_at = now + max(self._period_s, _REST * (now - self._entered))
