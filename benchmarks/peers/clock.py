"""Workers in virtual time for a peer's scheduler; events are in the order of holdfast's
simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol

from benchmarks.tasks.course import Course, Points
from benchmarks.tasks.task import Field, Task

CONTINUE, STOP, PAUSE = "continue", "stop", "pause"


@dataclass(slots=True, eq=False)
class Run:
    """A trial: `state` is what it has learned after `epoch` epochs."""

    number: int
    config: dict[str, Any]
    state: Any
    epoch: int = 0


class Player(Protocol):
    """A peer's algorithm, called as its own shell would call it."""

    def next(self) -> Run | None:
        """The next run for a free worker: a new one, or one that was paused."""
        ...

    def report(self, run: Run, seen: float) -> str:
        """The decision about a run at `run.epoch`: CONTINUE, STOP or PAUSE."""
        ...

    def ended(self, run: Run, seen: float) -> None:
        """The run was trained to the end, or stopped."""
        ...


def play(player: Player, task: Task, seed: int, field: Field) -> Points:
    """The true value of the incumbent over time in seconds."""
    course, worth = Course(), task.worth()
    agenda: list[tuple[float, int, Run]] = []
    now, budget_s = 0.0, field.budget_s(task)
    count, free = 0, field.workers
    while True:
        while free and (run := player.next()) is not None:
            free -= 1
            count += 1
            heappush(agenda, (now + task.seconds(task.given(run.config)), count, run))
        if not agenda:
            return course.points
        now, _, run = heappop(agenda)
        if now >= budget_s:
            return course.points
        config = dict(task.given(run.config))
        run.state, value = task.step(run.state, config)
        run.epoch += 1
        seen = task.seen(value, config, run.epoch, seed)
        course.saw(now, worth(seen, config), worth(value, config))
        answer = player.report(run, seen)
        is_over = answer == STOP or (run.epoch >= task.epochs and answer != PAUSE)
        if is_over:
            player.ended(run, seen)
        if is_over or answer == PAUSE:
            free += 1
        else:
            count += 1
            heappush(agenda, (now + task.seconds(task.given(run.config)), count, run))


def scaled_by(factor: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function of a config for PBT without randomness."""
    return lambda config: {name: value * factor for name, value in config.items()}
