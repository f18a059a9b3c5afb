"""Handles the signals that ask a script to end, while `fit()` runs in its main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from holdfast.runtime import process_control

# The default action of each signal: holdfast handles a signal only if the script has not changed
# it.
_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: process_control.DEFAULT,
    signal.SIGHUP: process_control.DEFAULT,
}


class StopSignals:
    """Counts the signals instead of letting them end the script.

    `with StopSignals() as signals: ...`. Signals that the script handles itself, or ignores, as
    under `nohup`, stay as they are. Outside the main thread this does nothing. A process that the
    script forks meanwhile gets the original handlers, because process pools are ended by SIGTERM.
    """

    def __init__(self, *, raises: bool = False, caught: Callable[[], None] = lambda: None) -> None:
        """`raises`: the main thread runs user code, which each signal must interrupt. `caught` is
        called in the handler."""
        self._raises = raises
        self._tell = caught
        self._caught: list[int] = []
        self._taken = 0
        self._before: dict[int, Any] = {}

    @property
    def last(self) -> int:
        """The newest signal; 0 before the first."""
        return self._caught[-1] if self._caught else 0

    def take(self) -> int:
        """The number of signals since the last call."""
        new, self._taken = len(self._caught) - self._taken, len(self._caught)
        return new

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum, default in _DEFAULTS.items():
                if signal.getsignal(signum) == default and not (
                    self._raises and signum == signal.SIGINT
                ):
                    self._before[signum] = default
                    process_control.set_own_handler(signum, self._catch, in_children=default)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            process_control.end_own_handler(signum, handler)

    def _catch(self, signum: int, _frame: FrameType | None) -> None:
        self._caught.append(signum)
        self._tell()
        if self._raises:
            raise KeyboardInterrupt


def deliver(signum: int) -> None:
    """Perform the default action of a signal that was caught. Does not return.

    Raises KeyboardInterrupt for SIGINT. Raises SystemExit if the kernel ignores the signal, as it
    does for the first process of a container.
    """
    if signum != signal.SIGINT:
        signal.raise_signal(signum)
        raise SystemExit(128 + signum)
    raise KeyboardInterrupt
