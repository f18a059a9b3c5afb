"""Shortens errors for users: what happened and where in their code, without holdfast's own frames.

A failed request to storage leaves a chain of three tracebacks, and a misspelled metric 25 lines of
holdfast's frames; only the last line says what happened. The log
`holdfast.experiment.results.short_errors` (level DEBUG) has what is cut off here.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from holdfast.experiment.progress.failure_text import is_holdfast_file
from holdfast.experiment.records.journal_start import JournalUnreadable
from holdfast.experiment.user_objects.pickling import NotPicklable
from holdfast.lazy import FrameworkMissing
from holdfast.names import printable
from holdfast.runtime.errors import RuntimeFault
from holdfast.syncer.errors import StorageError
from holdfast.trial.errors import (
    ExperimentInUse,
    InvalidTransition,
    TuneError,
    UnreadableRecord,
)

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


def short_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function, so that some errors show only the user's frames.

    These are KeyboardInterrupt and errors whose text says everything.
    """

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except (KeyboardInterrupt, TuneError, FrameworkMissing) as error:
            if not _says_all(error):
                raise
            raise _shortened(error) from None

    return called


# The text of these includes that of the errors behind them.
_TOLD = (
    KeyboardInterrupt,
    StorageError,
    RuntimeFault,
    NotPicklable,
    JournalUnreadable,
    ExperimentInUse,
)
# Perhaps a bug in holdfast: its frames show where.
_FAULTS = (InvalidTransition, UnreadableRecord)


def _says_all(error: BaseException) -> bool:
    if isinstance(error, _TOLD):
        return True
    return error.__cause__ is None and not isinstance(error, _FAULTS)


def _shortened(error: BaseException) -> BaseException:
    if not _is_short(error):
        _log.debug("cut off from %s", type(error).__name__, exc_info=error)
        error.is_short = True  # type: ignore[attr-defined]
    if sys.excepthook is sys.__excepthook__:  # otherwise another hook shows errors its own way
        sys.excepthook = _print
    error.__context__ = None
    return error.with_traceback(None)


def _is_short(error: BaseException) -> bool:
    return getattr(error, "is_short", False) is True


def _print(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Replaces `sys.excepthook`: of a shortened error, print the user's frames and what
    happened."""
    if not _is_short(error):
        sys.__excepthook__(kind, error, frames)
        return
    own = [frame for frame in traceback.extract_tb(frames) if not is_holdfast_file(frame.filename)]
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    text = printable(f"{name}: {error}" if str(error) else name, keep="\n\t")
    where = "".join(traceback.format_list(own))
    print(f"Traceback (most recent call last):\n{where}{text}", file=sys.stderr)
