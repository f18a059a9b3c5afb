"""The algorithm of DEHB on points of the unit cube: populations evolve in HyperBand brackets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from holdfast.dataclass import dataclass
from holdfast.scheduler.chance import Chance
from holdfast.scheduler.policies.hyperband import Shape
from holdfast.scheduler.searchers.cube import Vector
from holdfast.trial.domains import Random, below
from holdfast.trial.search_space.parameters import Assignment

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
