"""`holdfast queue run`: starts the jobs that are due, and writes down how they end.

Several runners of one queue are kept apart by the jobs' locks. A runner waits for its guards, and
looks four times a second whether a file in the folder has changed, a share was granted or a signal
has come.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from holdfast.dataclass import dataclass
from holdfast.experiment.machine.machine_share import MachineFolder, MachineShare, member_here
from holdfast.experiment.queue.guard import Order
from holdfast.experiment.queue.job_experiments import JOB
from holdfast.experiment.queue.queue_folder import (
    EXPERIMENTS,
    STDERR,
    STDOUT,
    Job,
    LastLines,
    ListedJob,
    QueueFolder,
    State,
)
from holdfast.runtime.fleet.facts import CPUS, detect_total, gpu_names_of
from holdfast.runtime.interpreter import start_child
from holdfast.runtime.orphans import children
from holdfast.runtime.process_exits import EXIT_DEADLINE_S
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Allocation

_GUARD = "holdfast.experiment.queue.guard:main"
_SHARE = "HOLDFAST_SHARE"
_LINES_BYTES = 4000
_LINES = 5


class JobProcess:
    """One job from its lock to its end. It waits first for what it holds as a whole."""

    def __init__(self, folder: QueueFolder, job: Job, lock: int) -> None:
        """Raises OSError, InvalidConfig."""
        self.job = job
        self.signums: list[int] = []
        self._folder = folder
        self._lock = lock
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
        """True if it holds what it has asked for."""
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
        member = member_here(
            f"job {self.job.id} of the queue",
            shares=True,
            total=total,
            uses=wanted,
            gpus=self._gpus,
        )
        self._share = MachineShare(MachineFolder.of(os.environ), member, lambda text: None)

        def granted(allocation: Allocation) -> None:
            self._granted = allocation

        taken = self._share.take(Allocation(amounts=wanted), granted)
        if isinstance(taken, Allocation):
            self._granted = taken

    def _environ(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables that the command gets besides the runner's environment. Its output is in
        its files at once, unless the user has decided about that, or it runs a sweep, whose
        commands would get this, too."""
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


_TICK_S = 0.25
# After a change it looks so long at each tick: times of files are coarse, and the lock of a job
# that has ended is free a little later.
_CHANGING_S = 1.0
# Also without news it looks so often: another runner may have been killed.
_LOOK_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that a runner says about a job: "started", "done", "failed", "interrupted" or
    "cannot start", with the reason."""

    what: str
    job: Job
    why: str = ""


class QueueRunner:
    """Runs up to `most` jobs at once. `tell` hears of each start and end."""

    def __init__(
        self,
        folder: QueueFolder,
        *,
        most: int,
        forever: bool,
        environ: Mapping[str, str],
        tell: Callable[[Happened], None],
    ) -> None:
        self._folder = folder
        self._most = most
        self._forever = forever
        self._environ = environ
        self._tell = tell
        self._jobs: dict[int, JobProcess] = {}
        self._caught: list[int] = []
        self._answered = 0
        # A job's runner was killed, and its last processes are just ending.
        self._is_ending = False
        self._name = ""
        # The newest change of the folder, and the times up to which and from which on it looks.
        self._seen = 0
        self._look_until = self._look_from = 0.0
        # Ends that are not written down yet.
        self._ended: dict[int, Callable[[Job], Job]] = {}
        self._spared = children()
        # Those that cannot start are not tried again by this runner.
        self._refused: set[int] = set()

    def run(self) -> bool:
        """Until nothing is due, or a signal came; returns whether one came."""
        try:
            with self._folder.runner() as self._name, self._signals():
                self._take()
                while self._jobs or (not self._caught and (self._forever or self._is_ending)):
                    self._wait()
                    self._write_ends()
                    self._obey()
                    self._take()
        finally:
            for one in self._jobs.values():  # an error: the guards end with their sockets
                one.close()
        return bool(self._caught)

    def _take(self) -> None:
        """Start what is due and fits."""
        if self._caught:
            return
        if self._is_news():
            self._is_ending = False
            for listed in self._listed():
                if len(self._jobs) >= self._most:
                    break
                number = listed.job.id
                if not listed.job.due or number in self._jobs or number in self._refused:
                    continue
                lock = self._folder.lock(number)
                if lock is not None:
                    self._begin(number, lock)
                elif listed.state is State.RUNNING:
                    last = listed.job.last
                    assert last is not None
                    self._is_ending |= not self._folder.has_runner(last.runner)
        for one in list(self._jobs.values()):
            if one.may_start and one.job.id in self._jobs:
                self._start(one)

    def _is_news(self) -> bool:
        """True if it should look at the jobs."""
        now, changed = time.monotonic(), self._folder.changed_at
        if changed != self._seen:
            self._seen, self._look_until = changed, now + _CHANGING_S
        if not self._is_ending and self._look_until < now < self._look_from:
            return False
        self._look_from = now + _LOOK_S
        return True

    def _listed(self) -> list[ListedJob]:
        """All jobs. Raises InvalidConfig for an invalid file, but first the jobs that run end."""
        try:
            return self._folder.jobs()
        except InvalidConfig:
            if not self._jobs:
                raise
            return []

    def _begin(self, number: int, lock: int) -> None:
        try:
            job = self._folder.read(number)
            if job.due:
                self._jobs[number] = JobProcess(self._folder, job, lock)
                return
        except FileNotFoundError:  # removed meanwhile
            pass
        except (OSError, InvalidConfig) as error:
            self._refuse(number, str(error))
        os.close(lock)

    def _refuse(self, number: int, why: str) -> None:
        self._refused.add(number)
        self._seen = 0
        self._tell(Happened(what="cannot start", job=self._folder.read(number), why=why))

    def _start(self, one: JobProcess) -> None:
        now = time.time()
        try:
            one.job = self._folder.change(one.job.id, lambda job: job.begun(now, self._name))
            one.start(self._environ)
        except OSError as error:  # a full disk, or too many arguments: the other jobs run
            del self._jobs[one.job.id]
            one.close()
            self._refuse(one.job.id, str(error))
            self._take()  # another job, in its place
            return
        self._tell(Happened(what="started", job=one.job))

    def _wait(self) -> None:
        """Until a guard answers, or for a moment."""
        running = {n: one for n, one in self._jobs.items() if n not in self._ended}
        sockets = {one.socket.fileno(): n for n, one in running.items() if one.socket}
        poll = select.poll()
        for descriptor in sockets:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(_TICK_S * 1000):
            self._hear(sockets[descriptor])

    def _hear(self, number: int) -> None:
        one = self._jobs[number]
        code = one.ended()
        if code is None:
            return
        self._end_left()
        interrupted, lines, now = bool(one.signums), one.last_lines(), time.time()

        def change(job: Job) -> Job:
            return job.ended(now, code, interrupted=interrupted, lines=lines)

        self._ended[number] = change
        self._write_ends()

    def _write_ends(self) -> None:
        """Write down how jobs have ended. While the disk is full, a job stays locked, so that
        nobody runs it again, and the others go on. Raises OSError if a signal came meanwhile."""
        for number, change in list(self._ended.items()):
            one = self._jobs[number]
            try:
                job = self._folder.change(number, change)
            except InvalidConfig:  # the user has removed or broken its file
                job = change(one.job)
            except OSError:
                if self._caught:
                    raise
                continue
            del self._jobs[number], self._ended[number]
            one.close()
            self._seen = 0
            is_cut = job.last is not None and job.last.interrupted
            code = None if job.last is None else job.last.exit_code
            what = "done" if code == 0 else "interrupted" if is_cut else "failed"
            self._tell(Happened(what=what, job=job))

    def _end_left(self) -> None:
        """End what a guard has left that was killed. This process has adopted it (Linux)."""
        guards = {one.guard_pid for one in self._jobs.values()}
        while left := children() - guards - self._spared:
            for pid in left:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _obey(self) -> None:
        """Pass on new signals, and end jobs that the user has stopped."""
        while self._answered < len(self._caught):
            signum = signal.SIGKILL if self._answered else self._caught[0]
            self._answered += 1
            for one in list(self._jobs.values()):
                self._end(one, signum)
        for one in list(self._jobs.values()):
            if one.signums:
                continue
            with suppress(FileNotFoundError, InvalidConfig):
                if not self._folder.read(one.job.id).due:
                    self._end(one, signal.SIGINT)

    def _end(self, one: JobProcess, signum: int) -> None:
        if one.is_started:
            one.signal(signum)
        else:  # it still waits for the CPUs that it asks for
            del self._jobs[one.job.id]
            one.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal interrupts the jobs, the second one kills them."""

        def catch(signum: int, _frame: FrameType | None) -> None:
            self._caught.append(signum)

        before = {signum: signal.signal(signum, catch) for signum in _SIGNALS}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
