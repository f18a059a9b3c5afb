"""Where a trial's stdout and stderr go: its files, and line by line to the controller."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from holdfast.experiment.session import LONGEST_LINE, Session
from holdfast.runtime import guard


class Outlet:
    """The output of one attempt, in its worker process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def open(self) -> None:
        job, directory = self._session.job, self._session.folder
        for fd, name in enumerate(self._session.log_names, start=1):
            file = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(file, fd)
            os.close(file)
        # A crash in native code leaves its stack there, and so does a worker that hangs, which
        # the default action of the signal then ends.
        faulthandler.enable(2)
        faulthandler.register(guard.DUMP, 2, all_threads=True, chain=True)
        if job.echo:
            for name in ("stdout", "stderr"):
                stream = getattr(sys, f"__{name}__")
                setattr(sys, name, Echo(stream, name, self._session.send_log))

    def flush(self) -> None:
        """At the end of the attempt: nothing that was printed stays behind."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Echo):
                stream.end_line()
            stream.flush()


class Echo:
    """A text stream that writes to a file and hands each whole line on.

    What a carriage return takes back is not handed on: progress bars rewrite one line for hours.
    """

    def __init__(self, file: TextIO, name: str, hand_on: Callable[[str, str], None]) -> None:
        self._file = file
        self._name = name
        self._hand_on = hand_on
        self._line = ""

    def write(self, text: str) -> int:
        self._file.write(text)
        if "\n" in text:
            self._file.flush()
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            self._hand_on(self._name, _last_version(line))
        self._line = _last_version(rest)[:LONGEST_LINE] + "\r" * rest.endswith("\r")
        return len(text)

    def end_line(self) -> None:
        """Hand on a line that was begun and will not be ended."""
        if self._line:
            line, self._line = self._line, ""
            self._hand_on(self._name, _last_version(line))

    def flush(self) -> None:
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _last_version(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]
