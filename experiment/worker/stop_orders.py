"""Delivers orders to stop to user code, as signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from holdfast.experiment.worker.session import Session, TrialStopped
from holdfast.runtime import process_control

# How long after an order was swallowed it is repeated.
_REPEAT_S = 0.05


@contextmanager
def stoppable(session: Session) -> Iterator[None]:
    """Let an order to stop unwind user code between two lines; outside user code the order waits.

    SIGTERM announces such an order.
    """
    if not session.job.capture:
        yield
        return

    orders = {process_control.STOP: session.stop, signal.SIGTERM: session.preempt}

    def obey(signum: int, _frame: FrameType | None) -> None:
        process_control.set_own_handler(signum, _do_nothing)
        orders[signum]()

    for signum in orders:
        process_control.set_own_handler(signum, obey)
    try:
        with _repeating(
            session, lambda: process_control.set_own_handler(process_control.STOP, obey)
        ):
            yield
    finally:
        for signum in orders:
            process_control.set_own_handler(signum, _do_nothing)


@contextmanager
def _repeating(session: Session, listen: Callable[[], None]) -> Iterator[None]:
    """Repeat an order to stop that Python swallowed, and do not print the traceback.

    Python passes an exception in a finalizer, in the callback of a weak reference or in a hook of
    fork() to `sys.unraisablehook`, and the code below continues. A DataLoader of torch with
    workers spends much time in both.
    """
    repeats: list[threading.Timer] = []
    shown = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, TrialStopped) or not session.is_here:
            shown(lost)
            return
        listen()
        # Repeat it later, from a thread: raised here, it would be swallowed again.
        repeat = threading.Timer(_REPEAT_S, os.kill, (os.getpid(), process_control.STOP))
        repeat.daemon = True
        repeats.append(repeat)
        repeat.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:  # otherwise user code has installed its own
            sys.unraisablehook = shown
        for repeat in repeats:  # none may reach the next trial of this process
            repeat.cancel()
            repeat.join()


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Replaces SIG_IGN, which children would inherit."""
