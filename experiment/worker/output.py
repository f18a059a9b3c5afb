"""Redirects a trial's stdout and stderr to its files and, line by line, to the controller."""

from __future__ import annotations

import faulthandler
import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

from holdfast.experiment.worker.session import LONGEST_LINE, Session
from holdfast.runtime import process_control
from holdfast.syncer.files.tree import regular_descriptor


class OutputCapture:
    """The output of one attempt, in its worker process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._streams: list[OutputStream] = []

    def open(self) -> None:
        directory = self._session.folder
        for fd, name in enumerate(self._session.log_names, start=1):
            file = regular_descriptor(
                f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND
            )
            os.dup2(file, fd)
            os.close(file)
        # A crash in native code writes its stack here. So does a worker that hangs; the default
        # action of the signal then ends it.
        faulthandler.enable(2)
        faulthandler.register(process_control.DUMP, 2, all_threads=True, chain=True)
        process_control.write_each_line()
        self._streams = [self._open_stream(fd, name) for fd, name in _STREAMS.items()]
        _live[:] = self._streams
        _follow_forks()

    def flush(self) -> None:
        """Write everything that was printed; called at the end of the attempt.

        User code may have closed, replaced or deleted `sys.stdout`.
        """
        for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
            with suppress(Exception):
                getattr(sys, name).flush()
        process_control.flush()
        for printed in self._streams:
            printed.finish()

    def _open_stream(self, fd: int, name: str) -> OutputStream:
        """Replace `sys.stdout` or `sys.stderr` by a stream of holdfast.

        Objects that a module kept from there at its import, such as a logging handler, also write
        each line immediately.
        """
        first = getattr(sys, f"__{name}__")
        try:
            if isinstance(first, io.TextIOWrapper):
                first.reconfigure(line_buffering=True)
        except ValueError:  # a module has closed or detached it
            first = None
        echo = None
        if self._session.job.echo:
            session = self._session
            send = partial(session.send_log, name)
            echo = LineEcho(send, lambda: session.is_sending, session.log_names[fd - 1])
        stream = OutputStream(fd, f"<{name}>", echo)
        encoding = getattr(first, "encoding", None) or "utf-8"
        errors = getattr(first, "errors", None) or "backslashreplace"
        setattr(sys, name, stream.open_text(encoding, errors))
        return stream


_STREAMS = {1: "stdout", 2: "stderr"}
# The streams of the attempt that this process runs.
_live: list[OutputStream] = []


@cache
def _follow_forks() -> None:
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def _before_fork() -> None:
    for stream in _live:
        stream.before_fork()


def _in_child() -> None:
    for stream in _live:
        stream.in_child()


# The most that is sent at a time. During a storm the stream sends 20 times a second: a terminal
# shows less, and the controller can read this much from many workers without delay.
# -- the lines that a trial prints, for the controller's terminal: not too many -------------------
# The trial's file has everything. Here, a carriage return discards the text before it in its
# line, because progress bars rewrite one line for hours. During a storm only the newest lines are
# sent.

_MOST_LINES = 500
_MOST_CHARACTERS = 1 << 17
_MOST_KEPT_BYTES = 1 << 20


class LineEcho:
    """Turns the bytes of one stream into lines.

    `send` sends several joined lines at once, unless `is_busy`. `file` is the name of the file
    that has all of them.
    """

    def __init__(
        self, send: Callable[[str], None], is_busy: Callable[[], bool], file: str
    ) -> None:
        self._send = send
        self._is_busy = is_busy
        self._file = file
        self._rest = b""
        self._kept: deque[bytes] = deque(maxlen=_MOST_LINES)
        self._kept_bytes = self._kept_lines = 0

    def keep(self, piece: bytes) -> bool:
        if len(self._kept) == _MOST_LINES:
            self._rest = b""  # it belongs to the piece that is dropped now
        self._kept.append(piece)
        self._kept_bytes += len(piece)
        self._kept_lines += piece.count(b"\n")
        return self._kept_bytes > _MOST_KEPT_BYTES

    def hand_on(self) -> None:
        if self._is_busy():
            return
        *lines, rest = (self._rest + b"".join(self._kept)).split(b"\n")
        count = self._kept_lines
        self._kept.clear()
        self._kept_bytes = self._kept_lines = 0
        self._rest = _last_version(rest)[:LONGEST_LINE] + b"\r" * rest.endswith(b"\r")
        if lines:
            shown = _newest(lines)
            skipped = count - len(shown)
            note = [f"... {skipped:,} lines not shown here, see {self._file}"] if skipped else []
            self._send("\n".join(note + shown))

    def end_line(self) -> None:
        self.hand_on()
        if self._rest:
            self.keep(b"\n")
            self.hand_on()


def _newest(lines: list[bytes]) -> list[str]:
    """The last of `lines` that fit into one message, oldest first."""
    shown: list[str] = []
    left = _MOST_CHARACTERS
    for line in reversed(lines[-_MOST_LINES:]):
        text = _last_version(line)[: 4 * LONGEST_LINE].decode(errors="replace")[:LONGEST_LINE]
        left -= len(text) + 1
        if left < 0:
            break
        shown.append(text)
    return shown[::-1]


def _last_version(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


# -- one standard stream of a trial: writes to its file at once, then to an echo ------------------

# This many pieces within one window are a storm.
_MANY = 100
_WINDOW_S = 0.05


class OutputStream(io.BufferedIOBase):
    """The binary layer below a trial's `sys.stdout`: unbuffered, and safe in forked children.

    Printed text is in the file when `print` returns, so no crash of the process loses it, and it
    is in order with what C code and child processes write to the same descriptor.

    `print` writes its text and the end of its line separately. In a storm of prints, `text`
    collects them, so that a line costs one write(2) and the echo gets many lines at once. Then the
    beginning of a line may wait for its end, at most 50 ms.
    """

    def __init__(self, fd: int, name: str, echo: LineEcho | None = None) -> None:
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
