"""Runs one short command, off the loop and with a deadline: a command of a cluster may hang."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.runtime import process_control
from holdfast.runtime.exit_cause import describe_code
from holdfast.runtime.process_exits import reaped
from holdfast.runtime.stopped import Watched

# More than any answer that is expected.
_LONGEST_ANSWER = 1 << 24
_SHOWN_LINES = 5
_SHOWN_BYTES = 1000
_KILL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command has printed. `fault` says why it has failed; "" if it has not. `is_late`: it
    was killed at its deadline, so nobody knows what it has done."""

    out: str = ""
    err: str = ""
    fault: str = ""
    is_late: bool = False

    @property
    def told(self) -> str:
        """How it has failed, with its last lines, in one line."""
        lines = last_lines(f"{self.out}\n{self.err}")
        return f"{self.fault}: {lines}" if lines else self.fault


class Commands:
    """The commands that run now. `environ` is their environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._running: set[subprocess.Popen[bytes]] = set()

    async def run(
        self, command: Sequence[str], *, deadline_s: float, stdin: bytes = b""
    ) -> Answer:
        """Wait for the command. It is killed at its deadline, and if this task is cancelled."""
        with _memory(stdin) as given, _memory() as out, _memory() as err:
            try:
                process = self._start(command, given, out, err)
            except OSError as error:
                return Answer(fault=f"cannot run: {error.strerror or error}")
            self._running.add(process)
            try:
                was_late = bool(await reaped(process, deadline_s))
            except asyncio.CancelledError:
                process_control.kill_group(process.pid)
                await reaped(process, _KILL_S)
                raise
            finally:
                self._running.discard(process)
            fault = f"did not end within {deadline_s:g} s" if was_late else ""
            if process.returncode and not was_late:
                fault = describe_code(process.returncode)
            return Answer(out=_text(out), err=_text(err), fault=fault, is_late=was_late)

    def begin(self, command: Sequence[str]) -> None:
        """Start a command and do not wait for it: this process is about to end."""
        with _memory() as nothing:
            try:
                process = self._start(command, nothing, nothing, nothing)
            except OSError:  # there is nobody to tell
                return
        threading.Thread(target=process.wait, name="holdfast-command", daemon=True).start()

    def processes(self) -> list[Watched]:
        return [
            Watched(process.pid, f"`{_program(process)}`", _killer(process))
            for process in self._running
        ]

    def kill(self) -> None:
        for process in self._running:
            process_control.kill_group(process.pid)

    def _start(
        self, command: Sequence[str], given: BinaryIO, out: BinaryIO, err: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Start it in a session of its own: a Ctrl-C does not reach it. Raises OSError."""
        return subprocess.Popen(
            command,
            env=self._environ,
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def last_lines(text: str) -> str:
    """The last lines of what a command has printed, as one line."""
    lines = [line.strip() for line in text[-_SHOWN_BYTES:].splitlines() if line.strip()]
    return " | ".join(printable(line) for line in lines[-_SHOWN_LINES:])


def _memory(content: bytes = b"") -> BinaryIO:
    """A file in memory: what is in it may be secret."""
    file = open(os.memfd_create("holdfast-command"), "w+b", buffering=0)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


def _text(file: BinaryIO) -> str:
    return os.pread(file.fileno(), _LONGEST_ANSWER, 0).decode(errors="replace")


def _program(process: subprocess.Popen[bytes]) -> str:
    args = process.args
    assert isinstance(args, (list, tuple))
    return str(args[0])


def _killer(process: subprocess.Popen[bytes]) -> Callable[[str], None]:
    return lambda why: process_control.kill_group(process.pid)
