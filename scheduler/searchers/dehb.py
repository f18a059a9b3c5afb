"""The searcher of DEHB: it suggests configs and their budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.policies.dehb import KEY
from holdfast.scheduler.policies.goal import Goal, check_number
from holdfast.scheduler.policies.hyperband import shapes
from holdfast.scheduler.searchers.cube import assignment_at, vector_of
from holdfast.scheduler.searchers.evolution import Evolution, Individual, RungJob
from holdfast.scheduler.searchers.searcher import Searcher, points_of
from holdfast.trial.domains import same
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.search_space.parameters import Assignment, Parameters


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one `fit()`; a restore rebuilds it from the journal."""

    goal: Goal
    parameters: Parameters
    budgets: list[float]
    evolution: Evolution
    number: int = 0
    jobs: dict[str, tuple[RungJob, Individual]] = field(default_factory=dict)

    def individual(self, assignment: Assignment, purpose: str) -> Individual:
        """The individual of an assignment; the same for the same trial after a restore."""
        rng = self.evolution.chance(f"place/{purpose}")
        vector = vector_of(self.parameters.all, assignment, rng)
        return Individual(vector=vector, tried=assignment)

    def begin(self, trial_id: str, assignment: Assignment, bracket: int, rung: int) -> None:
        job = self.evolution.begin(self.evolution.bracket(bracket), rung)
        self.jobs[trial_id] = (job, self.individual(assignment, f"trial {self.number}"))
        self.number += 1

    def loss(self, row: Mapping[str, Any]) -> float:
        value = self.goal.value(row)
        return math.inf if value is None else -value


class DEHBSearch(Searcher):
    """Differential evolution in the brackets of HyperBand, for use with DEHBScheduler.

    Each trial is one evaluation at one budget: its config contains `{"dehb": {"budget": ...,
    "bracket": ...}}`, and DEHBScheduler stops it at the budget. The largest budget is max_t, and
    each is `reduction_factor` times the next smaller one, down to at least 1. Each budget has a
    population of configs, which are points of the unit cube with one axis per parameter.

    The first bracket is a HyperBand bracket with random configs: the best are evaluated again at
    the next budget. In later brackets a trial's config is a mutant, crossed with a member of the
    population at its budget, which it replaces if it is at least as good. A mutant combines three
    parents: at a bracket's first budget from the same population, otherwise from the best at the
    budget below. While a bracket waits for trials to end, the next one begins.

    The value of a trial is the metric in its last report; a trial that fails, or whose metric is
    missing or not finite, has the worst value. One round of brackets with max_t=81 has 206 trials:
    set `num_samples`.

    `points_to_evaluate`: configs to start with; missing parameters are drawn at random.
    `mutation_factor` and `crossover_prob` are F and p of the paper. `seed`: a whole number makes
    the suggestions reproducible. Parameters that exist only in some configs can be searched.

    Awad, Mallik, Hutter, "DEHB: Evolutionary Hyberband for Scalable, Robust and Efficient
    Hyperparameter Optimization" (2021).

    Raises InvalidConfig; InvalidSearchSpace for a grid or a `sample_from` in param_space.
    """

    def __init__(
        self,
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        mutation_factor: float = 0.5,
        crossover_prob: float = 0.5,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        check_number(self, "max_t", max_t, least=1)
        check_number(self, "reduction_factor", reduction_factor, least=1, above=True)
        check_number(self, "mutation_factor", mutation_factor, least=0, above=True)
        check_number(self, "crossover_prob", crossover_prob, least=0, most=1)
        _require("seed", seed, seed is None or isinstance(seed, int), "a whole number")
        self.seed: int | None = seed
        self._factors = (mutation_factor, crossover_prob)
        self._max_t, self._shapes = max_t, shapes(max_t, reduction_factor)
        self._points = points_of(points_to_evaluate)
        count, room = len(self._points), self._shapes[0].places
        _require("points_to_evaluate", f"{count} configs", count <= room, f"at most {room}")
        self._run: _Run | None = None

    def check_space(self, metric: str | None, mode: str | None, config: Mapping[str, Any]) -> Any:
        goal = self._goal(self.metric or metric, self.mode or mode)
        if KEY in config:
            raise InvalidConfig(
                f"param_space has the key {KEY!r}, which DEHBSearch needs for a trial's budget: "
                "rename yours"
            )
        return goal, Parameters(config, who="DEHBSearch")

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        goal, parameters = self.check_space(metric, mode, config)
        mutation_factor, crossover_prob = self._factors
        evolution = Evolution(
            dimensions=len(parameters.all),
            shapes=self._shapes,
            mutation_factor=mutation_factor,
            crossover_prob=crossover_prob,
            seed=self.seed if self.seed is not None else int(spec.get("seed", 0)),
        )
        self._run = _Run(
            goal=goal,
            parameters=parameters,
            budgets=[*self._shapes[0].milestones, self._max_t],
            evolution=evolution,
        )
        self._begin_with_points(self._run)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        run = self._opened
        evolution, bracket = run.evolution, run.evolution.next_bracket()
        child = evolution.offspring(bracket, evolution.chance(f"trial/{run.number}"))
        assignment = child.tried or assignment_at(run.parameters.all, child.vector)
        budget = run.budgets[bracket.level + bracket.rung]
        run.begin(trial_id, assignment, bracket.number, bracket.rung)
        job = {"budget": int(budget) if budget % 1 == 0 else budget, "bracket": bracket.number}
        return {**run.parameters.config(assignment), KEY: job}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        run, job = self._opened, config[KEY]
        bracket = run.evolution.bracket(job["bracket"])
        if job["budget"] not in run.budgets[bracket.level :]:
            raise InvalidConfig(
                f"trial {trial_id} had the budget {job['budget']}, but DEHBSearch has the budgets "
                f"{run.budgets}: restore with the max_t and reduction_factor of the earlier run"
            )
        known = run.parameters.known(config)
        assignment = run.parameters.assignment(known, f"trial {trial_id}", same)
        rung = run.budgets.index(job["budget"]) - bracket.level
        run.begin(trial_id, assignment, bracket.number, rung)

    def take_added(self, trial_id: str, config: dict[str, Any]) -> bool:
        return False  # it has no place in a bracket

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        run = self._opened
        if trial_id not in run.jobs:
            return
        job, tried = run.jobs.pop(trial_id)
        loss = math.inf if error or result is None else run.loss(result)
        run.evolution.end(job, replace(tried, loss=loss))

    def __getstate__(self) -> dict[str, Any]:
        """The state before a run: the journal holds what the run has learned."""
        return {**self.__dict__, "_run": None}

    @property
    def _opened(self) -> _Run:
        if self._run is None:
            raise InvalidConfig(
                "pass DEHBSearch to a Tuner: TuneConfig(search_alg=DEHBSearch(...))"
            )
        return self._run

    def _goal(self, metric: object, mode: object) -> Goal:
        if not isinstance(metric, str) or not isinstance(mode, str):
            raise InvalidConfig(
                "DEHBSearch needs a metric to optimize: set TuneConfig(metric='...', mode='min')"
            )
        return Goal(metric=metric, mode=mode, time_attr="")

    def _begin_with_points(self, run: _Run) -> None:
        first = run.evolution.populations[0]
        for i, point in enumerate(self._points):
            label = f"points_to_evaluate[{i}]"
            known = run.parameters.assignment(point, label, same)
            rng = run.evolution.chance(f"point/{i}")
            first[i] = run.individual(run.parameters.complete(known, rng), f"point {i}")


def _require(name: str, value: object, fits: bool, what: str) -> None:
    require(fits, f"DEHBSearch({name}={value!r}): pass {what}")
