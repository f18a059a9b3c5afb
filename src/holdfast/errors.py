"""The base of what holdfast raises, below every room."""

from __future__ import annotations

from holdfast.names import printable


class TuneError(Exception):
    """Base of every error that holdfast raises to its user.

    As text it holds nothing that steers a terminal: names and messages in it may be anybody's.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n\t")
