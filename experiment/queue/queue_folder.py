"""The folder of a queue.

    0001.json          the job, written atomically
    0001.lock          locked while a runner has the job, and while processes of it are left
    0001.stdout/.stderr  its output, of all starts
    0001.experiments   the experiments that its script has begun, a line of JSON each
    .changing          locked by who changes a job's file
    .runner-...        locked by a runner as long as it lives

The commands in it run as the user, so a folder that others can write to is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Self

from holdfast.dataclass import dataclass
from holdfast.experiment.machine.machine_share import is_locked
from holdfast.schema import Count, Moment, UnreadableRecord, decode, to_fields
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.stores.store import parse_table, read_small
from holdfast.trial.errors import InvalidConfig

FORMAT = 1


class State(Enum):
    """The states that `holdfast queue ls` shows."""

    WAITING = "waiting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLines:
    """The last lines of a command's stderr or stdout."""

    text: str = ""
    of_stdout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a job. `exit_code` is negative for a signal; None while it runs, and if its
    runner was killed. `interrupted`: the runner asked it to end. `last_lines` are of its stderr,
    or, if it has written none, `of_stdout`. `runner` is the name of the runner's
    file."""

    began_at: Moment
    ended_at: Moment | None = None
    exit_code: int | None = None
    interrupted: bool = False
    last_lines: str = ""
    of_stdout: bool = False
    runner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The content of a job's file. It is `due` until it has ended by itself, or was stopped.

    With `cpus` or `gpus` it holds these as long as it runs; otherwise its trials share the
    machine, each with what it asks for.
    """

    version: Count = FORMAT
    id: Count
    name: str
    command: Sequence[str]
    directory: str
    added_at: Moment
    cpus: Count | None = None
    gpus: Count | None = None
    due: bool = True
    stopped: bool = False
    attempts: Sequence[Attempt] = ()

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def state(self, *, is_held: bool) -> State:
        """`is_held`: a runner, or the guard that it left, holds the job's lock."""
        last = self.last
        if is_held and last is not None and last.ended_at is None:
            return State.RUNNING
        if self.due:
            is_cut = last is not None and (last.ended_at is None or last.interrupted)
            return State.INTERRUPTED if is_cut else State.WAITING
        if self.stopped:
            return State.STOPPED
        return State.DONE if last is not None and last.exit_code == 0 else State.FAILED

    def since(self, state: State) -> float:
        """The time at which it came into this state, as far as the file says."""
        last = self.last
        if last is None or (state is State.WAITING and last.ended_at is None):
            return self.added_at
        return last.began_at if last.ended_at is None else last.ended_at

    @property
    def holds(self) -> dict[str, float]:
        """The resources that it holds as long as it runs; none if its trials share the machine."""
        if self.cpus is None and self.gpus is None:
            return {}
        return {"CPU": float(1 if self.cpus is None else self.cpus), "GPU": float(self.gpus or 0)}

    def begun(self, now: float, runner: str) -> Job:
        attempt = Attempt(began_at=now, runner=runner)
        return replace(self, attempts=[*self.attempts, attempt])

    def ended(self, now: float, exit_code: int, *, interrupted: bool, lines: LastLines) -> Job:
        """Its command has ended. If it was asked to, and has not ended well, it is due again."""
        is_cut = interrupted and exit_code != 0
        last = replace(
            self.attempts[-1],
            ended_at=now,
            exit_code=exit_code,
            interrupted=is_cut,
            last_lines=lines.text,
            of_stdout=lines.of_stdout,
        )
        return replace(self, due=self.due and is_cut, attempts=[*self.attempts[:-1], last])

    def stopped_by_user(self) -> Job:
        return replace(self, due=False, stopped=True)

    def retried(self) -> Job:
        return replace(self, due=True, stopped=False)


FOLDER = "HOLDFAST_QUEUE"
_MOST_BYTES = 16 << 20
_RUNNER = ".runner-"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
JSON, LOCK, STDOUT, STDERR, EXPERIMENTS = ".json", ".lock", ".stdout", ".stderr", ".experiments"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job with its state."""

    job: Job
    state: State


class QueueFolder:
    """Raises InvalidConfig if others could write to it, and OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.stat(path)
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise InvalidConfig(
                f"others can write to the queue in {path}, and its commands run as you: make it "
                f"yours alone (chmod 700), or name another folder with --queue or {FOLDER}"
            )

    @classmethod
    def of(cls, given: str | None, environ: Mapping[str, str]) -> Self:
        """The folder that the user names, or the usual one."""
        named = given or environ.get(FOLDER)
        if named:
            return cls(Path(named).expanduser().absolute())
        data = environ.get("XDG_DATA_HOME") or "~/.local/share"
        return cls(Path(data).expanduser().absolute() / "holdfast" / "queue")

    def add(self, make: Callable[[int], Job]) -> Job:
        """Add the job that `make` makes of its id."""
        with self._changing():
            number = max(self._ids(), default=0) + 1
            job = make(number)
            self._write(job)
        return job

    def jobs(self) -> list[ListedJob]:
        """All jobs in the order of their ids. Raises InvalidConfig for an invalid file."""
        with self._changing():  # a look at a lock would keep a runner from taking it
            return [self._listed(number) for number in self._ids()]

    def _listed(self, number: int) -> ListedJob:
        job = self.read(number)
        return ListedJob(job=job, state=job.state(is_held=is_locked(self.file(number, LOCK))))

    def read(self, number: int) -> Job:
        """Raises InvalidConfig, FileNotFoundError."""
        path = self.file(number, JSON)
        try:
            found: Job = decode(Job, parse_table(read_small(path, _MOST_BYTES)))
        except (ValueError, UnreadableRecord) as error:
            raise InvalidConfig(
                f"{path} is not a job of this version: {error}. Correct or remove the file"
            ) from None
        if found.version != FORMAT or found.id != number or not found.command:
            raise InvalidConfig(
                f"{path} is not a job of this version: it needs version {FORMAT}, the id {number} "
                f"and a command. Correct or remove the file"
            )
        return found

    def change(self, number: int, change: Callable[[Job], Job]) -> Job:
        """Replace a job's file. Raises InvalidConfig if there is no such job."""
        with self._changing():
            job = change(self.known(number))
            self._write(job)
        return job

    def remove(self, number: int) -> Job:
        """Remove a job and its output. Raises InvalidConfig if it runs."""
        with self._changing():
            job = self.known(number)
            lock = self._lock(number)
            if lock is None:
                raise InvalidConfig(f"job {number} runs: stop it first (holdfast queue stop)")
            try:
                for kind in (JSON, STDOUT, STDERR, EXPERIMENTS, LOCK):
                    self.file(number, kind).unlink(missing_ok=True)
            finally:
                os.close(lock)
        return job

    def lock(self, number: int) -> int | None:
        """The job's lock, whose descriptor its processes share; None if another one has it."""
        with self._changing():
            return self._lock(number)

    def _lock(self, number: int) -> int | None:
        descriptor = os.open(self.file(number, LOCK), _OPEN, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def file(self, number: int, kind: str) -> Path:
        return self.path / f"{number:04d}{kind}"

    @property
    def changed_at(self) -> int:
        """It differs from before if a job's file was written or removed meanwhile."""
        return os.stat(self.path).st_mtime_ns

    def has_runner(self, name: str) -> bool:
        """True if the runner of this name lives."""
        return is_locked(self.path / name)

    @contextmanager
    def runner(self) -> Iterator[str]:
        """The name of a new runner, which lives until then."""
        path = self.path / f"{_RUNNER}{os.getpid()}-{secrets.token_hex(4)}"
        with self._changing():
            for other in self.path.glob(f"{_RUNNER}*"):
                if not is_locked(other):  # it was killed
                    other.unlink()
            descriptor = os.open(path, _OPEN, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield path.name
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        descriptor = os.open(self.path / ".changing", _OPEN, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def known(self, number: int) -> Job:
        """Raises InvalidConfig if there is no such job."""
        try:
            return self.read(number)
        except FileNotFoundError:
            raise InvalidConfig(
                f"there is no job {number} in {self.path}: holdfast queue ls lists them"
            ) from None

    def _ids(self) -> Sequence[int]:
        names = (path.name.removesuffix(JSON) for path in self.path.glob(f"*{JSON}"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _write(self, job: Job) -> None:
        job = replace(job, attempts=list(job.attempts))
        text = json.dumps(to_fields(job), indent=1)
        write_atomic(self.file(job.id, JSON), f"{text}\n".encode())
