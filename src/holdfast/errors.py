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
