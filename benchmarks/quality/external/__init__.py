"""External tasks: which there are, which of them are for the end, and the regret of one run.

From a script, in an environment with `onnxruntime` (`scripts/venv quality`):

    from benchmarks.quality.external import regret
    regret("lcbench/3945", make_searcher=lambda task, seed: MySearcher(seed=seed), budget=100)

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

from benchmarks.quality.ours import Ours, run
from benchmarks.tasks.catalogue import task as task_of
from benchmarks.tasks.course import Points, value_at
from benchmarks.tasks.domains import conditional
from benchmarks.tasks.published import NAMES
from benchmarks.tasks.surrogates import data_sets, facts
from benchmarks.tasks.synthetic import SYNTHETIC
from benchmarks.tasks.task import Field, Task
from holdfast import tune

BUDGETS = (12.5, 25.0, 50.0, 100.0)
"""Trainings in all, by all workers together."""
MOST: Mapping[str, float] = {
    "lcbench": 100, "curves": 50, "xgboost": 100,
    "noisy": 100, "deceptive": 100, "categories": 100, "tables": 100, "bbob": 100,
}  # fmt: skip
"""The families, and the greatest budget of each."""
DEVELOPMENT = 12
END = 20


def development(family: str) -> list[str]:
    """The tasks that are looked at while algorithms are made. None of `published.NAMES`."""
    return [] if family in NAMES else _kept(family)[:DEVELOPMENT]


def held_out(family: str) -> list[str]:
    """The tasks that are looked at once, at the end."""
    if family in NAMES:
        return [f"{family}/{name}" for name in NAMES[family]]
    return _kept(family)[DEVELOPMENT : DEVELOPMENT + END]


def _kept(family: str) -> list[str]:
    """As many as are needed of what the rule leaves, in an order that has nothing to do with the
    data."""
    if family in SYNTHETIC:
        return [f"{family}/{instance}" for instance in range(DEVELOPMENT + END)]
    by_hash = sorted(data_sets(family), key=lambda number: sha256(number.encode()).hexdigest())
    base = "lcbench" if family == "curves" else family
    kept = (number for number in by_hash if not facts()[f"{base}/{number}"]["dropped"])
    return [f"{family}/{number}" for number in islice(kept, DEVELOPMENT + END)]


def field_of(budget: float, workers: int) -> Field:
    return Field(workers=workers, trainings=budget / workers)


def regret(
    task: str | Task,
    make_searcher: Callable[[Task, int], Any] = lambda task, seed: None,
    scheduler: Callable[[Task], Any] = lambda task: None,
    workers: int = 8,
    budget: float = BUDGETS[-1],
    seed: int = 0,
    space: Callable[[Task], dict[str, Any]] = lambda task: conditional(task.space, tune),
) -> list[float]:
    """The regret of one run in virtual time at each of BUDGETS up to `budget`.

    Without a searcher the configurations are random search's, the same for each contestant.
    `TuneConfig(time_budget_s=...)` is the time of `budget`. A task of `curves/` reports each
    epoch, and its trials can be stopped and paused; one of the other families reports once.
    """
    known = task_of(task) if isinstance(task, str) else task
    ours = Ours(scheduler=scheduler, search=make_searcher, space=space)
    points = run(ours, known, seed, field_of(budget, workers))
    return regrets(known, points, [at for at in BUDGETS if at <= budget], workers)


def regrets(task: Task, points: Points, budgets: Sequence[float], workers: int) -> list[float]:
    """A run without a report so far has the regret 1, as if it had a middling configuration."""
    values = [value_at(points, field_of(at, workers).budget_s(task)) for at in budgets]
    return [1.0 if value is None else round(task.regret(value), 6) for value in values]
