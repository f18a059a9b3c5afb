"""The base class of holdfast's errors, below every room."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from holdfast.names import printable


class Remedy(StrEnum):
    """What the user may do about an error, beside what its text says.

    RESUME: resume the run, when the cause is gone. EXTEND: make the same call with `extend=True`,
    which applies the settings that differ. FIT_AGAIN: call `fit()` again under the same name.
    """

    RESUME = "resume"
    EXTEND = "extend"
    FIT_AGAIN = "fit_again"


class TuneError(Exception):
    """Base class of every error that holdfast raises to its user.

    Its text has no control characters, because it may contain names and messages from files,
    buckets and workers. What shows the error adds how to follow its `remedy`.
    """

    remedy: Remedy | None = None

    def with_remedy(self, remedy: Remedy | None) -> Self:
        """This error, with what the user may do about it."""
        self.remedy = remedy
        return self

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n\t")


def for_the_caller(error: TuneError) -> TuneError:
    """The error of a setting (a ValueError) without the frames that have checked it, as its text
    says all; another error, and one with a cause, as it is."""
    is_told = isinstance(error, ValueError) and error.__cause__ is None
    return error.with_traceback(None) if is_told else error
