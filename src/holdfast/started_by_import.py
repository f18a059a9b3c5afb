"""Refuses a `fit()` that an import starts, or the end of Python.

A module without `if __name__ == "__main__":` would start its run again in each process that
imports it for a run, or for a child of `multiprocessing`. The run would also wait for the end of
the import, which waits for the run.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

from holdfast.errors import TuneError

_refuses = False
# The name of a script that a child of `multiprocessing` imports before its work.
_AGAIN = "__mp_main__"


class StartedByImport(TuneError):
    """The import of `module` has called `fit()`."""

    def __init__(self, module: str, line: str) -> None:
        super().__init__(
            f"importing {module} started fit() ({line}): put it under `if __name__ == '__main__':`"
        )
        self.module = module


def refuse_from_now_on() -> None:
    """From now on, `check` refuses in this process and in processes that are forked from it."""
    global _refuses
    _refuses = True


def check(home: str = "") -> None:
    """Refuse if an import calls this, directly or not: in a process that refuses all such calls,
    or if it is the import of the module `home`, which has the trainable, or of the script by a
    child of `multiprocessing`.

    Raises StartedByImport; TuneError if Python is ending, when it starts no more threads.
    """
    if not threading.main_thread().is_alive():
        raise TuneError(
            "fit() was called while Python ends (in an atexit handler or a __del__), when no new "
            "thread can start: call it before the script ends"
        )
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        is_again = name == _AGAIN
        if (_refuses or is_again or name == home) and _is_import(frame):
            called = "the script again" if is_again else name
            raise StartedByImport(called, f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back


def _is_import(frame: FrameType) -> bool:
    spec, name = (frame.f_globals.get(found) for found in ("__spec__", "__name__"))
    is_initializing = getattr(spec, "_initializing", False) or name == _AGAIN
    return frame.f_code.co_name == "<module>" and is_initializing
