"""Starts workers as fresh interpreters if forking is not safe. Each repeats all imports."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NoReturn

from holdfast import started_by_import
from holdfast.forked import children_end_here
from holdfast.runtime import process_control
from holdfast.runtime.holding import from_words, hold, words
from holdfast.runtime.interpreter import python_command
from holdfast.runtime.worker import be_worker, find_entry


class FreshInterpreters:
    """Starts workers of `entry` (`module:attribute`), which get `payload` through a file."""

    def __init__(
        self, entry: str, payload: bytes, inherited: Sequence[int], held: Sequence[str]
    ) -> None:
        self._entry = entry
        self._inherited = inherited
        self._held = held
        self._payload = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as we are
        self._payload.write(payload)
        self._payload.flush()

    def start(self, fd: int) -> int:
        """Start a worker that uses the socket `fd` and leads a process group. Returns its pid.

        Raises OSError.
        """
        payload = self._payload.fileno()
        command = python_command(
            "holdfast.runtime.warm.fresh:main",
            [self._entry, str(fd), str(payload), str(os.getpid()), words(self._held)],
        )
        process = subprocess.Popen(
            command, pass_fds=(fd, payload, *self._inherited), process_group=0
        )
        process.returncode = 0  # the warm parent reaps it like every worker
        return process.pid


def main() -> NoReturn:
    """Main function of a worker in a fresh interpreter."""
    name, fd, payload, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    process_control.die_with_parent(parent)
    started_by_import.refuse_from_now_on()
    hold(from_words(sys.argv[5]))
    process_control.adopt_orphans()
    # The environment is the warm parent's, including its limits for threads.
    entry = find_entry(name)
    with children_end_here():
        entry.prepare(os.pread(payload, os.fstat(payload).st_size, 0))
    be_worker(entry, fd)
