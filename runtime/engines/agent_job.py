"""Runs one agent on a machine of a cluster, as a child of a worker of Dask or Ray.

The worker imports this module, so it imports little, and Dask only where a worker of Dask calls.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from holdfast.names import printable
from holdfast.runtime import process_control
from holdfast.runtime.engines import bound, started
from holdfast.runtime.interpreter import LIMITS
from holdfast.runtime.launcher import describe_code
from holdfast.text.errors import named

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


def run_in_dask(ticket: str, invitation: BytesIO, topic: str, agent: Mapping[str, Any]) -> str:
    """Run an agent until it ends. Returns why it ended.

    Its begin and its end are also events on `topic`, because a task's result is lost with the
    client that asked for it. No error leaves this function: Dask would log its arguments.
    """
    import dask.config
    from distributed import get_worker

    nanny = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    environ = environ_in_dask(os.environ, nanny)
    log = get_worker().log_event
    try:
        cause, worked = JOBS.run(
            ticket,
            lambda: AgentJob(
                invitation.getvalue(),
                lambda: log(topic, ["began", ticket]),
                environ=environ,
                **agent,
            ),
        )
    except Exception as error:  # the host is told
        cause, worked = f"the agent cannot be started: {named(error)}", False
    log(topic, ["ended", ticket, cause, worked])
    return cause


def end_in_dask(ticket: str, why: str, grace_s: float) -> None:
    """End an agent of this worker."""
    JOBS.end(ticket, why, grace_s)


def environ_in_dask(environ: Mapping[str, str], nanny: Mapping[str, object]) -> dict[str, str]:
    """The environment for an agent: without the limits of threads that Dask's nanny sets for its
    workers, where many tasks share the cores."""
    set_by_nanny = {name: str(nanny[name]) for name in LIMITS if name in nanny}
    return {name: value for name, value in environ.items() if set_by_nanny.get(name) != value}


_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class RayAgent:
    """One agent. Its methods run in threads of the actor.

    The invitation comes with a call, because Ray keeps the arguments of constructors.
    """

    def __init__(self) -> None:
        self._jobs = Jobs()
        self._begun = threading.Event()

    def run(
        self, ticket: str, invitation: bytes, agent: Mapping[str, Any], has_gpus: bool
    ) -> Ending:
        """Run the agent until it ends. `has_gpus`: Ray has assigned GPUs to this actor."""
        environ = environ_in_ray(os.environ, started_with(), has_gpus=has_gpus)
        return self._jobs.run(
            ticket, lambda: AgentJob(invitation, self._begun.set, environ=environ, **agent)
        )

    def begun(self, within_s: float) -> bool:
        """Wait until the agent has begun."""
        return self._begun.wait(within_s)

    def end(self, ticket: str, why: str, grace_s: float) -> None:
        self._jobs.end(ticket, why, grace_s)


def started_with() -> dict[str, str] | None:
    """The environment that this process was started with; None if the system does not tell."""
    try:
        data = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def environ_in_ray(
    environ: Mapping[str, str], before: Mapping[str, str] | None, *, has_gpus: bool
) -> dict[str, str]:
    """The environment for an agent: without the limits that Ray has set in this process because
    the actor asks for no CPU, and for no GPU (Ray before 2.6x hides the GPUs of the node then)."""
    made = dict(environ)
    if before is not None:
        for name in LIMITS if has_gpus else (*LIMITS, *_GPUS):
            made.pop(name, None)
            made |= {name: before[name]} if name in before else {}
    return made
