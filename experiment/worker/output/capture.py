"""Redirects a trial's stdout and stderr to its files and, line by line, to the controller."""

from __future__ import annotations

import faulthandler
import io
import os
import sys
from contextlib import suppress
from functools import cache, partial

from holdfast.experiment.worker.output.echo import LineEcho
from holdfast.experiment.worker.output.stream import OutputStream
from holdfast.experiment.worker.session import Session
from holdfast.runtime import c_stdio, process_control
from holdfast.syncer.files.regular import regular_descriptor


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
        c_stdio.write_each_line()
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
        c_stdio.flush()
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
