"""A job of the queue: its file, and the state that follows from the file and its lock. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from holdfast.dataclass import dataclass
from holdfast.schema import Count, Moment

FORMAT = 1


class State(Enum):
    """What `holdfast queue ls` shows."""

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
    or, if it has written none, `of_stdout`. `runner` is the runner's bell."""

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
        """When it has come into this state, as far as the file says."""
        last = self.last
        if last is None or (state is State.WAITING and last.ended_at is None):
            return self.added_at
        return last.began_at if last.ended_at is None else last.ended_at

    @property
    def holds(self) -> dict[str, float]:
        """What it holds as long as it runs; nothing if its trials share the machine."""
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
