"""The results of runs, and the file that stores them: benchmarks/data/quality.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.quality.statistics import quartiles
from benchmarks.tasks.course import Points, mean_between, value_at
from benchmarks.tasks.task import Field, Task

FILE = Path(__file__).resolve().parent.parent / "data" / "quality.json"
OURS = "holdfast"
# In units of one whole training: the times at which the regret is stored, for plots.
_MOMENTS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The runs of one algorithm of `side` (OURS or a peer) on a task, one for each seed.

    `scores`: the regret of the incumbent, averaged over the time from one whole training (or a
    quarter of the time, if that is sooner) to the end; `finals`: the regret at the end.
    `quartiles`: the three quartiles of the regret at each of `moments` (in whole trainings), None
    before there is any.
    """

    side: str
    algorithm: str
    task: str
    workers: int
    trainings: float
    version: str
    scores: Sequence[float]
    finals: Sequence[float]
    quartiles: Sequence[Sequence[float] | None]
    took_s: float

    @property
    def moments(self) -> Sequence[float]:
        return _moments(self.trainings)

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.side, self.algorithm, self.task, self.workers


def result_of(
    side: str,
    algorithm: str,
    task: Task,
    field: Field,
    courses: Sequence[Points],
    *,
    version: str,
    took_s: float,
) -> Result:
    """The result of one course for each seed, from seed 0 on."""
    budget_s = field.budget_s(task)
    begin_s = min(task.full_s, budget_s / 4)
    shifted = [[(at, task.regret(value)) for at, value in course] for course in courses]
    return Result(
        side=side,
        algorithm=algorithm,
        task=task.name,
        workers=field.workers,
        trainings=field.trainings,
        version=version,
        scores=[round(mean_between(course, begin_s, budget_s), 6) for course in shifted],
        finals=[round(course[-1][1], 6) for course in shifted],
        quartiles=[_at(shifted, moment * task.full_s) for moment in _moments(field.trainings)],
        took_s=round(took_s, 1),
    )


def _moments(trainings: float) -> list[float]:
    return [trainings * (step + 1) / _MOMENTS for step in range(_MOMENTS)]


def _at(courses: Sequence[Points], elapsed_s: float) -> tuple[float, ...] | None:
    values = [value_at(course, elapsed_s) for course in courses]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return tuple(round(part, 5) for part in quartiles(known))


def read(file: Path = FILE) -> list[Result]:
    """The stored results; empty if there is no file."""
    if not file.exists():
        return []
    return [Result(**found) for found in json.loads(file.read_text())["results"]]


def write(results: Sequence[Result], file: Path = FILE) -> None:
    """Write one line for each result, so that a diff shows what has changed."""
    lines = [json.dumps(asdict(found)) for found in sorted(results, key=lambda found: found.key)]
    file.write_text('{"results": [\n' + ",\n".join(lines) + "\n]}\n")
