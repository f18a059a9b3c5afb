"""One standard stream of a trial: writes to its file at once, then to an echo."""

from __future__ import annotations

import io
import os
import threading
import time
from contextlib import suppress
from typing import Any, Protocol

# This many pieces within one window are a storm.
_MANY = 100
_WINDOW_S = 0.05


class Echo(Protocol):
    """Gets a stream's bytes after they were written."""

    def keep(self, piece: bytes) -> bool:
        """Keep a piece. True if so much is kept that it must be sent now."""

    def hand_on(self) -> None:
        """Send the complete lines that are kept."""

    def end_line(self) -> None:
        """Also send the last, incomplete line."""


class OutputStream(io.BufferedIOBase):
    """The binary layer below a trial's `sys.stdout`: unbuffered, and safe in forked children.

    Printed text is in the file when `print` returns, so no crash of the process loses it, and it
    is in order with what C code and child processes write to the same descriptor.

    `print` writes its text and the end of its line separately. In a storm of prints, `text`
    collects them, so that a line costs one write(2) and the echo gets many lines at once. Then the
    beginning of a line may wait for its end, at most 50 ms.
    """

    def __init__(self, fd: int, name: str, echo: Echo | None = None) -> None:
        self.name, self.mode = name, "wb"
        self.text: io.TextIOWrapper[Any] = io.TextIOWrapper(io.BytesIO())
        self._fd = fd
        self._echo = echo
        # A signal handler may print while the same thread prints.
        self._lock = threading.RLock()
        self._pieces = 0
        self._window_began_s = 0.0
        self._is_storm = self._is_child = False
        self._ending = threading.Event()

    def open_text(self, encoding: str, errors: str) -> io.TextIOWrapper[Any]:
        """The text layer, for `sys.stdout`."""
        self.text = io.TextIOWrapper(self, encoding=encoding, errors=errors, write_through=True)
        return self.text

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any, /) -> int:
        """Raises OSError if the file cannot be written."""
        piece = data if type(data) is bytes else bytes(data)
        with self._lock:
            written = os.write(self._fd, piece)
            while written < len(piece):
                written += os.write(self._fd, piece[written:])
            self._pieces += 1
            if not self._is_storm and self._pieces >= _MANY:
                self._look_out()
            if self._echo is not None and (self._echo.keep(piece) or not self._is_storm):
                self._echo.hand_on()
        return written

    def finish(self) -> None:
        """Write everything that is still held here and in the echo; called at the end of the
        attempt."""
        self._ending.set()
        with self._lock:
            self._calm_down()
            if self._echo is not None:
                self._echo.end_line()

    def before_fork(self) -> None:
        """Write held text, which the child would otherwise write, too."""
        if self._is_storm:
            with suppress(OSError, ValueError):  # the next print raises it for user code
                self.text.flush()

    def in_child(self) -> None:
        """Called in a child that user code forked: the echo and the thread belong to its
        parent."""
        self._lock = threading.RLock()
        self._echo, self._is_child = None, True
        self._calm_down()

    def _look_out(self) -> None:
        """Many pieces were printed. If that took less than a window, a storm begins."""
        now = time.monotonic()
        is_many = now - self._window_began_s < _WINDOW_S
        self._window_began_s, self._pieces = now, 0
        if is_many and not self._is_child and not self._ending.is_set():
            thread = threading.Thread(target=self._follow_storm, name="holdfast-out", daemon=True)
            with suppress(RuntimeError, ValueError):  # no room for a thread, or no text layer
                thread.start()
                self._is_storm = True
                self.text.reconfigure(line_buffering=True, write_through=False)

    def _follow_storm(self) -> None:
        while not self._ending.wait(_WINDOW_S):
            with self._lock:
                if self._pieces < _MANY:
                    self._calm_down()
                if self._echo is not None:
                    self._echo.hand_on()
                self._pieces = 0
                if not self._is_storm:
                    return

    def _calm_down(self) -> None:
        if self._is_storm:
            self._is_storm = False
            with suppress(OSError, ValueError):  # the next print raises it for user code
                self.text.reconfigure(line_buffering=False, write_through=True)
