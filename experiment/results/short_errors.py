"""Errors as users see them: what happened and where in their code, without holdfast's own frames.

A failed request to storage leaves a chain of three tracebacks, and a misspelled metric 25 lines of
our frames; only the last line says what happened. What is cut off here goes to the log
`holdfast.experiment.results.short_errors` (level DEBUG).
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from holdfast.experiment.progress.failure_text import is_ours
from holdfast.experiment.records.journal_start import JournalUnreadable
from holdfast.experiment.user_objects.pickling import NotPicklable
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
    """For what users call: a KeyboardInterrupt, and an error whose text says all that there is to
    say, come without their history, and the interpreter prints only the user's frames."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except (KeyboardInterrupt, TuneError) as error:
            if not _says_all(error):
                raise
            raise _shortened(error) from None

    return called


# Their text has what the errors behind them say.
_TOLD = (
    KeyboardInterrupt,
    StorageError,
    RuntimeFault,
    NotPicklable,
    JournalUnreadable,
    ExperimentInUse,
)
# Perhaps a fault of holdfast: our frames say where.
_FAULTS = (InvalidTransition, UnreadableRecord)


def _says_all(error: BaseException) -> bool:
    if isinstance(error, _TOLD):
        return True
    return error.__cause__ is None and not isinstance(error, _FAULTS)


def _shortened(error: BaseException) -> BaseException:
    if not _is_short(error):
        _log.debug("cut off from %s", type(error).__name__, exc_info=error)
        error.is_short = True  # type: ignore[attr-defined]
    if sys.excepthook is sys.__excepthook__:  # else somebody shows errors in a way of their own
        sys.excepthook = _print
    error.__context__ = None
    return error.with_traceback(None)


def _is_short(error: BaseException) -> bool:
    return getattr(error, "is_short", False) is True


def _print(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """In place of `sys.excepthook`: of a shortened error, the user's frames and what happened."""
    if not _is_short(error):
        sys.__excepthook__(kind, error, frames)
        return
    own = [frame for frame in traceback.extract_tb(frames) if not is_ours(frame.filename)]
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    text = printable(f"{name}: {error}" if str(error) else name, keep="\n\t")
    where = "".join(traceback.format_list(own))
    print(f"Traceback (most recent call last):\n{where}{text}", file=sys.stderr)
