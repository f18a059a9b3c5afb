"""The base class of holdfast's errors, below every room."""

from __future__ import annotations

from holdfast.names import printable


class TuneError(Exception):
    """Base class of every error that holdfast raises to its user.

    Its text has no control characters, because it may contain names and messages from files,
    buckets and workers.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n\t")


def for_the_caller(error: TuneError) -> TuneError:
    """The error of a setting (a ValueError) without the frames that have checked it, as its text
    says all; another error, and one with a cause, as it is."""
    is_told = isinstance(error, ValueError) and error.__cause__ is None
    return error.with_traceback(None) if is_told else error
