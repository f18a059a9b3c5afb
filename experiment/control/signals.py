"""The signals that ask a script to end, while `fit()` runs in its main thread."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from holdfast.runtime import process_control

# What each does to a script that has made no arrangements; only then it is ours to handle.
_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: process_control.DEFAULT,
    signal.SIGHUP: process_control.DEFAULT,
}


class StopSignals:
    """Counts them instead of letting them end the script: `with StopSignals() as signals: ...`.

    What the script handles by itself, or ignores as `nohup` makes it, stays as it is. Another
    thread than the main one can handle none. A process that the script forks meanwhile has its
    own handlers: whoever ends the processes of a pool does it by SIGTERM.
    """

    def __init__(self, *, raises: bool = False) -> None:
        """`raises`: the main thread runs user code, which each of them is to interrupt."""
        self._raises = raises
        self._caught: list[int] = []
        self._taken = 0
        self._before: dict[int, Any] = {}

    @property
    def last(self) -> int:
        """The newest one, 0 before the first."""
        return self._caught[-1] if self._caught else 0

    def take(self) -> int:
        """How many came since this was last asked."""
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
        if self._raises:
            raise KeyboardInterrupt


def deliver(signum: int) -> None:
    """Let a signal that was caught do what it would have done. Does not return.

    Raises KeyboardInterrupt for SIGINT, and SystemExit where the kernel spares this process: the
    first one of a container has no default actions.
    """
    if signum != signal.SIGINT:
        signal.raise_signal(signum)
        raise SystemExit(128 + signum)
    raise KeyboardInterrupt
