"""Shortens errors for users: what happened and where in their code, without holdfast's own frames.

A failed request to storage leaves a chain of three tracebacks, and a misspelled metric 25 lines of
holdfast's frames; only the last line says what happened. The log
`holdfast.results.short_errors` (level DEBUG) has what is cut off here.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from holdfast.lazy import FrameworkMissing
from holdfast.names import printable
from holdfast.runtime.errors import RuntimeFault
from holdfast.schema import UnreadableRecord
from holdfast.syncer.errors import StorageError
from holdfast.trial.errors import (
    ExperimentInUse,
    InvalidTransition,
    TuneError,
)
from holdfast.usable_process import fault_of_start, make_usable

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


def short_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function, so that some errors show only the user's frames. It finds the
    process usable.

    These are KeyboardInterrupt and errors whose text says everything.
    """

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        make_usable()
        try:
            return call(*args, **kwargs)
        except (KeyboardInterrupt, TuneError, FrameworkMissing) as error:
            if not _says_all(error):
                raise
            raise _shortened(error) from None
        except (UnicodeEncodeError, FileNotFoundError) as error:
            if (told := fault_of_start(error)) is None:
                raise
            raise _shortened(told) from None

    return called


# Perhaps a bug in holdfast: its frames show where.
_FAULTS = (InvalidTransition, UnreadableRecord)


def _says_all(error: BaseException) -> bool:
    # Not before: every script imports this module, and few have an error.
    from holdfast.experiment.records.journal import JournalUnreadable
    from holdfast.experiment.user_objects.pickling import NotPicklable

    # The text of these includes that of the errors behind them.
    told = (StorageError, RuntimeFault, NotPicklable, JournalUnreadable, ExperimentInUse)
    if isinstance(error, (KeyboardInterrupt, *told)):
        return True
    return error.__cause__ is None and not isinstance(error, _FAULTS)


def as_users_error(error: BaseException) -> BaseException:
    """An error of user code that a run has called, with the frames behind those of holdfast.

    One that holdfast itself has raised is returned as it is: its frames show where.
    """
    own = _behind_ours(error.__traceback__)
    if own is None or isinstance(error, TuneError) or not isinstance(error, Exception):
        return error
    return _marked(error).with_traceback(own)


def _behind_ours(frames: TracebackType | None) -> TracebackType | None:
    """The frames after the last one of holdfast."""
    from holdfast.experiment.progress.wording import is_holdfast_file

    own = one = frames
    while one is not None:
        if is_holdfast_file(one.tb_frame.f_code.co_filename):
            own = one.tb_next
        one = one.tb_next
    return own


def _shortened(error: BaseException) -> BaseException:
    error = _marked(error)
    error.__context__ = None
    return error.with_traceback(None)


def _marked(error: BaseException) -> BaseException:
    """The error, of which `_print` will show the user's frames."""
    if not _is_short(error):
        _log.debug("cut off from %s", type(error).__name__, exc_info=error)
        error.is_short = True  # type: ignore[attr-defined]
    if sys.excepthook is sys.__excepthook__:  # otherwise another hook shows errors its own way
        sys.excepthook = _print
    return error


def _is_short(error: BaseException) -> bool:
    return getattr(error, "is_short", False) is True


def _print(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Replaces `sys.excepthook`: of a shortened error, print the user's frames and what
    happened."""
    if not _is_short(error):
        sys.__excepthook__(kind, error, frames)
        return
    shown = traceback.TracebackException(kind, error, frames)
    _keep_users_frames(shown)
    text = "".join(shown.format()).rstrip("\n")
    print(printable(text, keep="\n\t"), file=sys.stderr)


def _keep_users_frames(shown: traceback.TracebackException | None) -> None:
    from holdfast.experiment.progress.wording import is_holdfast_file

    while shown is not None:
        own = [frame for frame in shown.stack if not is_holdfast_file(frame.filename)]
        shown.stack = traceback.StackSummary.from_list(own)
        shown = shown.__cause__ or shown.__context__
