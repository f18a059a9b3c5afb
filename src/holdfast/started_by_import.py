"""Refuses a `fit()` that an import starts.

A module without `if __name__ == "__main__":` would start its run again in each process that
imports it for a run. The run would also wait for the end of the import, which waits for the run.
"""

from __future__ import annotations

import sys
from types import FrameType

from holdfast.errors import TuneError

_refuses = False


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
    or if it is the import of the module `home`, which has the trainable.

    Raises StartedByImport.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if (_refuses or name == home) and _is_import(frame):
            raise StartedByImport(name, f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back


def _is_import(frame: FrameType) -> bool:
    spec = frame.f_globals.get("__spec__")
    return frame.f_code.co_name == "<module>" and getattr(spec, "_initializing", False)
