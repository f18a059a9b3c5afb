"""The errors of a trial that runs a command."""

from __future__ import annotations

from holdfast.trial.errors import TuneError


class CommandError(TuneError):
    """The command of a trial failed; the message says what it did."""


class CommandNotStarted(CommandError):
    """The operating system could not start the command; the message has its words and why."""


class CommandFailed(CommandError):
    """The command failed, or reported something impossible; the message has its last lines of
    stderr."""
