"""Captures what the script prints while a table is at the bottom of its terminal.

Its prints, and the lines of loggers that write to the terminal, are shown above the table with its
next drawing. Written directly, they would break the table.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO


class StdoutAbove(io.TextIOBase):
    """Replaces `stream`: passes whole lines to `show`, from any thread."""

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self.stream = stream
        self._show = show
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._show(line)
        return len(text)

    def flush(self) -> None:
        """Lines are shown with the next drawing."""

    def end(self) -> None:
        """Show an incomplete line as it is."""
        if self._begun:
            self._show(self._begun)
            self._begun = ""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def __getattr__(self, name: str) -> Any:
        """Attributes that only the stream itself has, such as its `buffer`."""
        return getattr(self.stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


class Prints:
    """Captures stdout and stderr from `start` to `stop`, if they are terminals."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._caught: dict[str, StdoutAbove] = {}
        self._handlers: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []

    def start(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and stream.isatty():
                self._caught[name] = caught = StdoutAbove(stream, self._show)
                setattr(sys, name, caught)
                self._divert(stream, caught)

    def stop(self) -> None:
        """Restore the streams, unless other code has replaced holdfast's."""
        for handler, stream in self._handlers:
            if isinstance(handler.stream, StdoutAbove):
                handler.setStream(stream)
        for name, caught in self._caught.items():
            caught.end()
            if getattr(sys, name) is caught:
                setattr(sys, name, caught.stream)
        self._caught, self._handlers = {}, []

    def _divert(self, stream: TextIO, caught: StdoutAbove) -> None:
        """Redirect handlers of `logging`, which keep the stream that they were created with."""
        for handler in _handlers():
            if handler.stream is stream:
                self._handlers.append((handler, stream))
                handler.setStream(caught)  # type: ignore[arg-type]


def _handlers() -> Iterator[logging.StreamHandler[TextIO]]:
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in known:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                yield handler
