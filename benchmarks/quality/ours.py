"""One run of one of holdfast's algorithms: a task, a seed, a number of workers, in virtual
time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.tasks.course import Course, Points
from benchmarks.tasks.domains import domains
from benchmarks.tasks.space import Axis
from benchmarks.tasks.task import Field, Task, drawn
from holdfast import tune
from holdfast.simulate import simulate
from holdfast.tune.search import Searcher

METRIC, WORTH = "loss", "worth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """An algorithm for a TuneConfig. If `search` returns None, configs are `drawn`.

    `space` is the Tuner's search space; None if the searcher has its own. `uses_generator`: the
    Tuner searches at random itself.
    """

    scheduler: Callable[[Task], Any] = lambda task: None
    search: Callable[[Task, int], Any] = lambda task, seed: None
    space: Callable[[Task], dict[str, Any]] = lambda task: domains(task.space, tune)
    settings: Mapping[str, Any] = field(default_factory=dict)
    uses_generator: bool = False


class Drawn(Searcher):
    """Random search with the same draws that the peers get: number i of a seed is the same."""

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        self._task = task
        self._seed = seed
        self._count = 0

    def set_search_properties(self, *properties: Any, **spec: Any) -> bool:
        return True  # it knows the task's space

    def suggest(self, trial_id: str) -> dict[str, Any]:
        config = drawn(self._task, self._seed, self._count)
        self._count += 1
        return config


class Training:
    """The task's curve with noise; a state is the task's, and the epoch. One for each run."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._seed = seed
        self._worth = task.worth()

    def begin(self, config: dict[str, Any]) -> tuple[Any, int]:
        return self._task.begun, 0

    def step(
        self, state: tuple[Any, int], config: dict[str, Any]
    ) -> tuple[tuple[Any, int], dict[str, float]]:
        task, (inner, epoch) = self._task, state
        config = dict(task.given(config))
        inner, value = task.step(inner, config)
        seen = task.seen(value, config, epoch + 1, self._seed)
        row = {**task.row(seen, config), WORTH: self._worth(seen, config)}
        return (inner, epoch + 1), row


def run(ours: Ours, task: Task, seed: int, field: Field) -> Points:
    """The true value of the incumbent over time in seconds. Raises what the algorithm raises."""
    search = None if ours.uses_generator else ours.search(task, seed) or Drawn(task, seed)
    space = ours.space(task)
    if isinstance(search, Drawn):  # it draws conditional parameters itself
        space = domains([axis for axis in task.space if axis.where is None], tune)
    given: dict[str, Any] = {
        "num_samples": 10**9, "time_budget_s": field.budget_s(task), **ours.settings
    }  # fmt: skip
    found = simulate(
        Training(task, seed),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric=WORTH if task.cost else METRIC,
            mode="min",
            scheduler=ours.scheduler(task),
            search_alg=search,
            **given,
        ),
        workers=field.workers,
        seconds_per_iteration=lambda config: task.seconds(task.given(config)),
        iterations=task.epochs,
        seed=seed,
    )
    configs = {trial.trial_id: trial.config for trial in found.trials}
    course = Course()
    for best in found.incumbents:
        value = best.value
        if task.noise:
            value = task.value(task.given(configs[best.trial_id]), best.iteration)
        course.saw(best.elapsed_s, best.value, value)
    return course.points


def optuna_space(task: Task) -> Callable[[Any], None]:
    """The space as a function of an Optuna trial, including conditions."""

    def ask(trial: Any) -> None:
        config: dict[str, Any] = {}
        for axis in task.space:
            if axis.exists(config):
                config[axis.name] = _suggested(trial, axis)

    return ask


def _suggested(trial: Any, axis: Axis) -> Any:
    if axis.choices:
        return trial.suggest_categorical(axis.name, list(axis.choices))
    if axis.integer:
        return trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log)
    return trial.suggest_float(axis.name, axis.low, axis.high, log=axis.log)
