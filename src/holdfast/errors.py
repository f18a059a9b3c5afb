"""The base class of holdfast's errors, below every room."""

from __future__ import annotations

from holdfast.names import printable


class TuneError(Exception):
    """Base of every error that holdfast raises to its user.

    Its text has no control characters: names and messages in it may come from anybody.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n\t")
