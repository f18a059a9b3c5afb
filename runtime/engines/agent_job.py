"""Runs one agent on a machine of a cluster, as a child of a worker of Dask or Ray.

The worker imports this module, so it imports little, and nothing of Dask or Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from holdfast.names import printable
from holdfast.runtime import process_control
from holdfast.runtime.engines import bound, started
from holdfast.runtime.launcher import describe_code

AGENT = "holdfast.agent"
_CHUNK_BYTES = 1 << 16
_KEPT_BYTES = 2000
_KEPT_LINES = 10
# A process that the agent has left behind may hold its output open.
_OUTPUT_DEADLINE_S = 1.0
# An agent that exits with an error so soon was of no use, as one that was refused.
_SOON_S = 10.0

# How an agent has ended: the cause in one line, and whether it had been of use.
Ending = tuple[str, bool]


class AgentJob:
    """An agent in a session of its own. It first says that it runs, and then gets its
    invitation."""

    def __init__(
        self,
        invitation: bytes,
        on_started: Callable[[], None],
        *,
        python: Sequence[str] = (),
        module: str = AGENT,
        answer_s: float,
        variables: Mapping[str, str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`python` is the command of the interpreter; this process's own if it is empty. It gets
        `environ`, by default that of this process, and `variables`. `on_started` is called in a
        thread. Raises OSError."""
        self._invitation = invitation
        self._on_started = on_started
        self._command = (*(python or (sys.executable,)), "-m", started.MODULE, module, "-")
        self._printed = b""
        self._started_at: float | None = None
        self._ordered = ""
        self._is_ended = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", bound.MODULE, str(os.getpid()), *self._command],
            bufsize=0,
            env={**(os.environ if environ is None else environ), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # The threads that read, end and wait share the state of its start.
        self._lock = threading.Lock()
        self._timer = threading.Timer(0, lambda: None)
        with self._lock:
            self._kill_after(answer_s, started.not_started(answer_s))
        # Last: the agent may start at once, which cancels the timer.
        self._reader = threading.Thread(target=self._read, name="holdfast-agent", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> Ending:
        """Wait until it has ended."""
        code = self._process.wait()
        with self._lock:
            self._timer.cancel()
        self._reader.join(_OUTPUT_DEADLINE_S)
        if self._started_at is None and self._process.stdin is not None:
            self._process.stdin.close()
        return self._cause(code), self._has_worked(code)

    def end(self, why: str, grace_s: float) -> None:
        """Let it end: its host has ordered it to. After `grace_s` seconds it is killed; one that
        has not started is killed at once."""
        with self._lock:
            self._is_ended = True
            self._kill_after(grace_s if self._started_at is not None else 0.0, why)

    def kill(self, why: str) -> None:
        """Send SIGKILL to its process group."""
        if self._process.poll() is None:
            self._ordered = why
            process_control.kill_group(self.pid)

    def _kill_after(self, seconds: float, why: str) -> None:
        """The caller holds the lock."""
        self._timer.cancel()
        self._timer = threading.Timer(seconds, self.kill, [why])
        self._timer.daemon = True
        self._timer.start()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with stdout:
            while data := stdout.read(_CHUNK_BYTES):
                self._printed = (self._printed + data)[-_KEPT_BYTES:]
                if self._started_at is None and started.SIGN in self._printed:
                    self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._is_ended:
                return
            self._started_at = time.monotonic()
            self._timer.cancel()
        self._on_started()
        stdin = self._process.stdin
        assert stdin is not None
        _write(stdin, self._invitation)

    def _has_worked(self, code: int) -> bool:
        if self._started_at is None or code == started.UNREACHED:
            return False
        was_lost = code <= 0 or code == started.UNHEARD
        return was_lost or time.monotonic() - self._started_at >= _SOON_S

    def _cause(self, code: int) -> str:
        if self._ordered and code == -signal.SIGKILL:
            how = f"was killed by holdfast: {self._ordered}"
        else:
            how = describe_code(code)
        text = self._printed.replace(started.SIGN, b"").decode(errors="replace")
        lines = [printable(line.strip()) for line in text.splitlines() if line.strip()]
        told = (
            f"Its last lines: {' | '.join(lines[-_KEPT_LINES:])}"
            if lines
            else "It printed nothing"
        )
        return started.advised(f"`{' '.join(self._command)}` {how}. {told}")


def _write(stdin: IO[bytes], data: bytes) -> None:
    """Write all, and close. An agent that has ended says itself why."""
    try:
        with stdin:
            while data:
                data = data[stdin.write(data) :]
    except BrokenPipeError:
        return


class Jobs:
    """The agents of one worker process, by ticket. Its methods are called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, AgentJob] = {}
        self._refused: set[str] = set()

    def run(self, ticket: str, start: Callable[[], AgentJob]) -> Ending:
        """Run an agent until it ends."""
        with self._lock:
            if ticket in self._refused:
                return "it was given back before it began", False
            try:
                job = self._jobs[ticket] = start()
            except OSError as error:
                return f"the agent cannot be started: {error}", False
        try:
            return job.wait()
        finally:
            job.kill("its task was ended")
            with self._lock:
                del self._jobs[ticket]

    def end(self, ticket: str, why: str, grace_s: float) -> None:
        """End this agent; if it has not begun yet, it never will."""
        with self._lock:
            self._refused.add(ticket)
            job = self._jobs.get(ticket)
        if job is not None:
            job.end(why, grace_s)


JOBS = Jobs()
