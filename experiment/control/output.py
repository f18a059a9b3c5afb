"""The output of a run: its loop writes, and the thread that called `fit()` reads."""

from __future__ import annotations

import queue
from collections import deque
from contextlib import suppress

from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.progress.terminal_view import LogBuffer

_MOST_LINES = 10_000


class RunOutput:
    """Lines of trials, messages, and the `phase` of a run that starts or ends.

    Any thread may call `tell` and `ring`, and signal handlers may ring, too. The thread of `fit()`
    waits for the bell, and says by `rings_at_events` whether each event is worth it. `phase`
    belongs to the loop's thread.
    """

    def __init__(self, phase: str) -> None:
        self.lines = LogBuffer(_MOST_LINES)
        self.messages: deque[tuple[str, Level]] = deque()
        self.phase = phase
        self.rings_at_events = False
        # `put` is reentrant, as a signal handler needs it.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Let the thread of `fit()` look at once."""
        if self._bell.empty():
            self._bell.put(None)

    def rings_within(self, timeout_s: float) -> bool:
        """Wait for the bell, for `timeout_s` seconds at most. Returns whether it rang."""
        with suppress(queue.Empty):
            self._bell.get(timeout=timeout_s)
            return True
        return False

    def tell(self, text: str, level: Level = "warning") -> None:
        """Show a message."""
        self.messages.append((text, level))
        self.ring()

    def show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None:
        """Show a line that a trial has printed."""
        self.lines.put(f"{trial_name} pid={pid}", text)
        self.ring()

    def show_phase(self, phase: str) -> None:
        self.phase = phase
        self.ring()
