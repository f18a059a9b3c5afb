"""The searcher of DEHB: populations of configs evolve in HyperBand brackets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.policies.goal import Chance, Goal, check_number
from holdfast.scheduler.policies.hyperband import KEY, Shape, shapes
from holdfast.scheduler.searchers.cube import Vector, assignment_at, vector_of
from holdfast.scheduler.searchers.searcher import Searcher, points_of
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.search_space.parameters import Assignment, Parameters
from holdfast.trial.space import Random, below, same

_PARENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual:
    """A config and its loss; infinite if it is not known.

    `tried` is the assignment that a trial has used or will use; None means that of the vector.
    """

    vector: Vector
    loss: float = math.inf
    tried: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RungJob:
    """A trial's job: the rung of its bracket, and the member that it may replace at that
    budget."""

    bracket: int
    rung: int
    slot: int


class DehbBracket:
    """The progress of a bracket; its rung r is at the budget with the index `level` + r."""

    def __init__(self, number: int, level: int, shape: Shape) -> None:
        self.number, self.level = number, level
        self.sizes = [shape.places]
        for _ in shape.milestones:
            self.sizes.append(shape.survivors(self.sizes[-1]))
        self.begun = [0] * len(self.sizes)
        self.ended: list[list[Individual]] = [[] for _ in self.sizes]
        self.rung = 0

    @property
    def is_over(self) -> bool:
        return self.rung == len(self.sizes)

    @property
    def has_job(self) -> bool:
        return not self.is_over and self.begun[self.rung] < self.sizes[self.rung]

    def begin(self, rung: int) -> None:
        self.rung = max(self.rung, rung)
        self.begun[rung] += 1

    def end(self, rung: int, individual: Individual) -> None:
        """Record the end of a trial; when all trials of a rung have ended, the next rung
        begins."""
        self.ended[rung].append(individual)
        while not self.is_over and len(self.ended[self.rung]) >= self.sizes[self.rung]:
            self.rung += 1


@dataclass(slots=True, kw_only=True)
class Evolution:
    """The state of one experiment: a population for each budget, and the brackets.

    It depends only on `seed` and on which trials began and ended, in order. `shapes` are the
    brackets of one round; the first one begins at the smallest budget. A population has as many
    members as the bracket that begins at its budget has places.
    """

    dimensions: int
    shapes: Sequence[Shape]
    mutation_factor: float
    crossover_prob: float
    seed: int
    populations: list[list[Individual]] = field(default_factory=list)
    brackets: list[DehbBracket] = field(default_factory=list)
    _open: list[DehbBracket] = field(default_factory=list)
    _begun: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for level, shape in enumerate(self.shapes):
            chances = [self.chance(f"first/{level}/{slot}") for slot in range(shape.places)]
            vectors = [_anywhere(self.dimensions, rng) for rng in chances]
            self.populations.append([Individual(vector=vector) for vector in vectors])
            self._begun.append(0)

    def chance(self, purpose: str) -> Chance:
        return Chance(f"{self.seed}/dehb/{purpose}")

    def next_bracket(self) -> DehbBracket:
        """The first bracket with a job; a new one if all wait for trials to end."""
        with_job = (bracket for bracket in self._open if bracket.has_job)
        return next(with_job, None) or self.bracket(len(self.brackets))

    def bracket(self, number: int) -> DehbBracket:
        while len(self.brackets) <= number:
            count = len(self.brackets)
            level = count % len(self.shapes)
            self.brackets.append(DehbBracket(count, level, self.shapes[level]))
            self._open.append(self.brackets[-1])
        return self.brackets[number]

    def offspring(self, bracket: DehbBracket, rng: Random) -> Individual:
        """The config of the bracket's next trial."""
        level = bracket.level + bracket.rung
        target = self.populations[level][self._slot(level)]
        if bracket.number == 0:
            return self._halved(bracket) or target
        mutant = self._mutant(self._parents(bracket, target), rng)
        return Individual(vector=_crossed(target.vector, mutant, self.crossover_prob, rng))

    def begin(self, bracket: DehbBracket, rung: int) -> RungJob:
        level = bracket.level + rung
        job = RungJob(bracket=bracket.number, rung=rung, slot=self._slot(level))
        self._begun[level] += 1
        bracket.begin(rung)
        return job

    def end(self, job: RungJob, individual: Individual) -> None:
        """Record the end of a trial. If it is at least as good, it replaces its target."""
        bracket = self.brackets[job.bracket]
        population = self.populations[bracket.level + job.rung]
        if individual.loss < math.inf and individual.loss <= population[job.slot].loss:
            population[job.slot] = individual
        bracket.end(job.rung, individual)
        if bracket.is_over and bracket in self._open:
            self._open.remove(bracket)

    def _slot(self, level: int) -> int:
        """The members of a population in turn."""
        return self._begun[level] % len(self.populations[level])

    def _halved(self, bracket: DehbBracket) -> Individual | None:
        """The first bracket is a HyperBand bracket: the best continue unchanged."""
        if bracket.rung == 0:
            return None
        ranked = sorted(bracket.ended[bracket.rung - 1], key=lambda one: one.loss)
        sound = [one for one in ranked if one.loss < math.inf]
        place = bracket.begun[bracket.rung]
        return sound[place] if place < len(sound) else None

    def _parents(self, bracket: DehbBracket, target: Individual) -> list[Vector]:
        """The parents of a mutant.

        At the first rung the rest of the population, later the best at the budget below. If these
        are too few, all individuals.
        """
        level, everyone = bracket.level + bracket.rung, self.populations
        if bracket.rung == 0:
            chosen = [one for one in everyone[level] if one is not target]
        else:
            ranked = sorted(everyone[level - 1], key=lambda one: one.loss)
            chosen = ranked[: bracket.sizes[bracket.rung]]
        if len(chosen) < _PARENTS:
            chosen += [one for population in everyone for one in population if one is not target]
        return [one.vector for one in chosen]

    def _mutant(self, parents: list[Vector], rng: Random) -> Vector:
        """rand/1 of differential evolution; a coordinate outside the cube is drawn again."""
        if len(parents) < _PARENTS:
            return _anywhere(self.dimensions, rng)
        left = list(parents)
        base, one, other = (left.pop(below(len(left), rng)) for _ in range(_PARENTS))
        steps = zip(base, one, other, strict=True)
        moved = [x + self.mutation_factor * (a - b) for x, a, b in steps]
        return tuple(place if 0 <= place < 1 else rng.random() for place in moved)


def _anywhere(dimensions: int, rng: Random) -> Vector:
    return tuple(rng.random() for _ in range(dimensions))


def _crossed(target: Vector, mutant: Vector, probability: float, rng: Random) -> Vector:
    """Binomial crossover: a random choice for each number, but at least one is the mutant's."""
    sure = below(len(target), rng)
    return tuple(
        changed if i == sure or rng.random() < probability else kept
        for i, (kept, changed) in enumerate(zip(target, mutant, strict=True))
    )


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
