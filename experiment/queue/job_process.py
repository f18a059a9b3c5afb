"""A job that this process runs: its lock, its guard, and what it holds of the machine."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Mapping

from holdfast.experiment.machine.machine_share import MachineShare
from holdfast.experiment.machine.members import MachineFolder, Member
from holdfast.experiment.queue.guard import Order
from holdfast.experiment.queue.job import Job, LastLines
from holdfast.experiment.queue.job_experiments import JOB
from holdfast.experiment.queue.queue_folder import EXPERIMENTS, STDERR, STDOUT, QueueFolder
from holdfast.runtime.fleet.facts import CPUS, detect_total, gpu_names_of
from holdfast.runtime.interpreter import start_child
from holdfast.runtime.process_exits import EXIT_DEADLINE_S
from holdfast.trial.resources import Allocation

_GUARD = "holdfast.experiment.queue.guard:main"
_SHARE = "HOLDFAST_SHARE"
_LINES_BYTES = 4000
_LINES = 5


class JobProcess:
    """One job from its lock to its end. It waits first for what it holds as a whole."""

    def __init__(self, folder: QueueFolder, job: Job, lock: int, wake: Callable[[], None]) -> None:
        """`wake` is called in any thread when the job may start. Raises OSError, InvalidConfig."""
        self.job = job
        self.signums: list[int] = []
        self._folder = folder
        self._lock = lock
        self._wake = wake
        self._guard: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._answer = b""
        self._share: MachineShare | None = None
        self._granted: Allocation | None = None
        self._gpus = gpu_names_of(int(detect_total().get("GPU", 0)))
        if job.holds:
            self._ask()

    @property
    def is_started(self) -> bool:
        return self._guard is not None

    @property
    def guard_pid(self) -> int:
        """0 before it is started."""
        return 0 if self._guard is None else self._guard.pid

    @property
    def may_start(self) -> bool:
        """Whether it holds what it has asked for."""
        return not self.is_started and (self._share is None or self._granted is not None)

    @property
    def socket(self) -> socket.socket | None:
        """It becomes readable when the guard answers or ends."""
        return self._socket

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the command under its guard. Raises OSError."""
        job, folder = self.job, self._folder
        order = Order(
            title=f"{job.id} {job.name}",
            command=list(job.command),
            directory=job.directory,
            stdout=str(folder.file(job.id, STDOUT)),
            stderr=str(folder.file(job.id, STDERR)),
            held=[] if self._share is None else [self._share.workers],
        )
        self._guard, self._socket = start_child(
            _GUARD,
            order.words(),
            environ={**environ, **self._environ(environ)},
            inherited_fds=[self._lock],
        )

    def signal(self, signum: int) -> None:
        """Deliver a signal to the command's process group."""
        self.signums.append(signum)
        if self._socket is not None:
            try:
                self._socket.send(bytes([signum]))
            except OSError:  # it has just ended
                return

    def ended(self) -> int | None:
        """Read what the guard says; the exit code once the job has ended. Call it when `socket` is
        readable."""
        assert self._socket is not None
        assert self._guard is not None
        try:
            part = self._socket.recv(64)
        except OSError:
            part = b""
        self._answer += part
        if part:
            return None
        try:
            status = self._guard.wait(EXIT_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            status = 1
        return int(self._answer) if self._answer else (status or 1)

    def last_lines(self) -> LastLines:
        """The last lines that it has written to stderr, else to stdout."""
        for kind in (STDERR, STDOUT):
            if text := _tail(str(self._folder.file(self.job.id, kind))):
                return LastLines(text=text, of_stdout=kind == STDOUT)
        return LastLines()

    def close(self) -> None:
        """Give back the lock and what it held."""
        if self._socket is not None:
            self._socket.close()
        if self._share is not None:
            self._share.close()
        os.close(self._lock)

    def _ask(self) -> None:
        total = detect_total()
        wanted = {key: amount for key, amount in self.job.holds.items() if amount}
        member = Member.here(
            f"job {self.job.id} of the queue",
            shares=True,
            total=total,
            uses=wanted,
            gpus=self._gpus,
        )
        self._share = MachineShare(MachineFolder.of(os.environ), member, lambda text: None)

        def granted(allocation: Allocation) -> None:
            self._granted = allocation
            self._wake()

        taken = self._share.take(wanted, granted)
        if isinstance(taken, Allocation):
            self._granted = taken

    def _environ(self, given: Mapping[str, str]) -> dict[str, str]:
        """What the command gets besides the runner's environment. What it prints is in its files
        at once, unless the user has decided about that, or it runs a sweep, whose commands would
        get this, too."""
        is_sweep = "holdfast" in map(os.path.basename, self.job.command[:3])
        made = {
            **({} if is_sweep else {"PYTHONUNBUFFERED": given.get("PYTHONUNBUFFERED", "1")}),
            JOB: str(self._folder.file(self.job.id, EXPERIMENTS)),
        }
        if self._granted is None:
            return {**made, _SHARE: given.get(_SHARE) or "1"}
        made |= {_SHARE: "0", CPUS: str(int(self.job.holds["CPU"]))}
        if self._gpus:
            seen = [self._gpus[gpu] for gpu in self._granted.gpus]
            made["CUDA_VISIBLE_DEVICES"] = ",".join(seen)
        return made


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LINES_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_LINES:])
