"""The process of a trial's command: its pipes, and its end with everything that it started.

It leads a session of its own, so that a signal reaches what it started, too. The kernel kills it
with this process. What leaves its session is ended by the warm parent (`runtime/orphans.py`).
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from holdfast.experiment.worker.command.errors import CommandNotStarted
from holdfast.runtime import process_control

REPORT_FILE: Final = "HOLDFAST_REPORT_FILE"
ACK: Final = "HOLDFAST_ACK"
_CHUNK_BYTES = 1 << 16
# A pipe of Linux holds 64 KiB, and at most 1 MiB unless root has raised that.
_MOST_LEFT_BYTES = 1 << 20
_EXITED = b"\0"
_LONGEST_WAIT_S = 3600.0
# How long the kernel may take to end a process after SIGKILL, for instance in a dead disk.
_KILLED_WITHIN_S = 60.0


class CommandProcess:
    """A command that runs. Use it as a context manager: at its end nothing of it is left."""

    def __init__(self, words: Sequence[str], *, cwd: str, environ: Mapping[str, str]) -> None:
        self.words = tuple(words)
        self._selector = selectors.DefaultSelector()
        self._fds: list[int] = []
        self._exited = threading.Event()
        self._signal_fd: int | None = None
        self._is_terminated = False
        report, reports_to = self._pipe()
        acks_from, self._acks = self._pipe()
        woken, self._wakes = self._pipe()
        for fd in (report, self._acks, woken, self._wakes):
            os.set_blocking(fd, False)
        process_control.load()
        parent = os.getpid()
        try:
            self._process = subprocess.Popen(
                self.words,
                cwd=cwd,
                env={**environ, REPORT_FILE: _path(reports_to), ACK: _path(acks_from)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(reports_to, acks_from),
                preexec_fn=lambda: process_control.die_with_parent(parent),
            )
        except (OSError, ValueError) as error:
            self._close()
            raise CommandNotStarted(f"{error}: {shlex.join(self.words)}") from None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._streams = (self._process.stdout, self._process.stderr)
        for name, fd in (
            ("stdout", self._process.stdout.fileno()),
            ("stderr", self._process.stderr.fileno()),
            ("report", report),
            ("woken", woken),
        ):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, name)
        self._open = {"stdout", "stderr"}
        self._waiter = threading.Thread(target=self._wait, name="holdfast-command", daemon=True)
        self._waiter.start()

    def __enter__(self) -> CommandProcess:
        if threading.current_thread() is threading.main_thread():
            self._signal_fd = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._signal_fd is not None:
            signal.set_wakeup_fd(self._signal_fd)
        process_control.kill_group(self._process.pid)
        if self._exited.wait(_KILLED_WITHIN_S):
            self._process.wait(_KILLED_WITHIN_S)
            self._waiter.join(_KILLED_WITHIN_S)
        self._close()

    def output(self) -> Iterator[tuple[str, bytes]]:
        """Pieces of `stdout`, `stderr` and `report`, until the command has exited; ("signal", b"")
        after a signal to this process."""
        while not self._exited.is_set():
            yield from self._pieces(_LONGEST_WAIT_S)
        yield from self._left()

    def end(self, grace_s: float) -> Iterator[tuple[str, bytes]]:
        """Send SIGTERM, unless that was done, and SIGKILL after `grace_s`; pieces of its output
        meanwhile.

        The grace ends early when the command has exited and nothing else holds its output.
        """
        self.terminate()
        until = time.monotonic() + grace_s
        while (self._open or not self._exited.is_set()) and (left := until - time.monotonic()) > 0:
            yield from self._pieces(left)
        process_control.kill_group(self._process.pid)
        self._exited.wait(_KILLED_WITHIN_S)
        yield from self._left()

    @property
    def is_held(self) -> bool:
        """Whether something that the command started still has its stdout or stderr."""
        return bool(self._open)

    def terminate(self) -> None:
        """Send SIGTERM to the command and what it started in its session, once."""
        if not self._is_terminated:
            self._is_terminated = True
            process_control.kill_group(self._process.pid, signal.SIGTERM)

    def answer(self, text: str) -> None:
        """Write a line that the command reads from $HOLDFAST_ACK."""
        with suppress(BlockingIOError):  # it asked for thousands and reads none
            os.write(self._acks, f"{text}\n".encode())

    def status(self) -> int:
        """The exit status, negative for a signal. Call it after `output`.

        Raises subprocess.TimeoutExpired for a process that hangs in the kernel after SIGKILL.
        """
        return self._process.wait(_KILLED_WITHIN_S)

    def _pieces(self, within_s: float) -> Iterator[tuple[str, bytes]]:
        for key, _ in self._selector.select(within_s):
            piece = _read(key.fd)
            if key.data == "woken":
                if piece and piece.strip(_EXITED):
                    yield "signal", b""
            elif piece:
                yield key.data, piece
            elif piece is not None:
                self._selector.unregister(key.fd)
                self._open.discard(key.data)

    def _left(self) -> Iterator[tuple[str, bytes]]:
        """What the pipes still hold; what others still write there is left out."""
        for key in list(self._selector.get_map().values()):
            left = _MOST_LEFT_BYTES
            while key.data != "woken" and left > 0 and (piece := _read(key.fd)) is not None:
                if not piece:
                    self._selector.unregister(key.fd)
                    self._open.discard(key.data)
                    break
                left -= len(piece)
                yield key.data, piece

    def _wait(self) -> None:
        """Notice the exit without reaping: until then no other process gets this pid."""
        with suppress(ChildProcessError):
            if sys.platform == "linux":
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
        self._exited.set()
        with suppress(BlockingIOError):  # it is full of signals, which wake, too
            os.write(self._wakes, _EXITED)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._fds += ends
        return ends

    def _close(self) -> None:
        self._selector.close()
        for stream in getattr(self, "_streams", ()):
            stream.close()
        while self._fds:
            os.close(self._fds.pop())


def _path(fd: int) -> str:
    """A path of this end of a pipe for the command, and on Linux for everything below it, whether
    it has inherited the descriptor or not."""
    return f"/proc/{os.getpid()}/fd/{fd}" if sys.platform == "linux" else f"/dev/fd/{fd}"


def _read(fd: int) -> bytes | None:
    """A piece; b"" at the end, None if there is none now."""
    try:
        return os.read(fd, _CHUNK_BYTES)
    except BlockingIOError:
        return None
