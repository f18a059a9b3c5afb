"""`TuneBOHB`: holdfast's implementation of BOHB's model; it needs no library."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from holdfast.compat.advice import is_of
from holdfast.dataclass import dataclass
from holdfast.scheduler.searchers.cube import Density, Vector, place, value_at, varied
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameters
from holdfast.trial.space import Categorical, Float, Integer, Normal
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.library import (
    AssignmentCodec,
    DependentParameter,
    FlatParameters,
    LibrarySearch,
    Losses,
    Query,
    SearchGoal,
    Study,
    fixed,
)

_LEAST = 1e-32  # a density of 0 would make a config infinitely better
_UNIFORM: Final = "write a uniform one, or tune.randn(mean, sd)"
Conditions = dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BohbParameters:
    """The paper's parameters N_min, q, N_s, rho and b_w, with its defaults."""

    min_points_in_model: int | None = None
    top_n_percent: float = 15
    num_samples: int = 64
    random_fraction: float = 1 / 3
    bandwidth_factor: float = 3
    min_bandwidth: float = 1e-3

    def __post_init__(self) -> None:
        _check("top_n_percent", self.top_n_percent, 0 < self.top_n_percent < 100)
        _check("num_samples", self.num_samples, self.num_samples >= 1)
        _check("random_fraction", self.random_fraction, 0 <= self.random_fraction <= 1)
        _check("bandwidth_factor", self.bandwidth_factor, self.bandwidth_factor > 0)
        _check("min_bandwidth", self.min_bandwidth, 0 < self.min_bandwidth < 1)


class TuneBOHB(LibrarySearch):
    """The search of BOHB, to be used with the scheduler `HyperBandForBOHB`.

    A share of the configs is drawn at random. The others come from a kernel density of the good
    trials: of `num_samples` draws, the one with the highest ratio of its density among the good to
    that among the bad. The largest budget that enough trials have reported decides what is good; a
    budget is a `training_iteration` at which a trial has ended. A failed trial is bad at every
    budget, and a point that was tried elsewhere counts at every budget.

    `bohb_config` may have `min_points_in_model` (the number of parameters and 1), `top_n_percent`
    (15), `num_samples` (64), `random_fraction` (1/3), `bandwidth_factor` (3) and `min_bandwidth`
    (0.001). At most `max_concurrent` trials run at once, 0 for no limit. For the rest see
    `LibrarySearch`. It searches every kind of domain, also in a choice. `space` may also be a
    ConfigurationSpace of ConfigSpace.

    S. Falkner, A. Klein, F. Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at
    Scale" (2018). Raises InvalidConfig.
    """

    def __init__(
        self,
        space: Any = None,
        bohb_config: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        given, known = dict(bohb_config or {}), [field.name for field in fields(BohbParameters)]
        if strange := [name for name in given if name not in known]:
            raise InvalidConfig(
                f"bohb_config has the unknown key {strange[0]!r}; the keys are {', '.join(known)}"
            )
        self._limit_to(max_concurrent, "max_concurrent", least=0)
        self._terms = BohbParameters(**given)

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        if is_config_space(space):
            return read_config_space(space, self._name)
        return super().read_space(space, is_own=is_own)

    def open_study(self, parameters: Parameters, goal: SearchGoal, seed: int) -> _Study:
        return _Study(parameters, self._terms)


class _Study(Study):
    def __init__(self, parameters: Parameters, terms: BohbParameters) -> None:
        self._parameters = parameters
        self._terms = terms
        self._searched = varied(parameters.all)
        self._least = max(terms.min_points_in_model or 0, len(self._searched) + 1)
        self._sizes = [
            one.count if isinstance(one.domain, Categorical) else 0 for one in self._searched
        ]
        self._vectors: dict[int, Vector] = {}
        self._seen: dict[int, dict[int, float]] = {}
        self._everywhere: dict[int, float] = {}
        # The iterations at which trials have ended: at those in between, only the trials that
        # continued have reported.
        self._budgets: set[int] = set()
        self._newest: dict[int, int] = {}

    def ask(self, query: Query) -> Assignment:
        rng = random.Random(f"{query.seed}/bohb")
        answer = self._parameters.complete({}, rng)
        if rng.random() >= self._terms.random_fraction and (ranked := self._ranked()):
            whole = self._parameters.complete(self._likely(ranked, rng), rng)
            answer = self._parameters.fit(whole, "TuneBOHB")
        self.take(query, answer)
        return answer

    def take(self, query: Query, assignment: Assignment) -> None:
        self._vectors[query.number] = self._vector(query, assignment)

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        self._seen.setdefault(step, {})[query.number] = losses[0]
        self._newest[query.number] = step

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        if losses is None:
            self._everywhere[query.number] = math.inf
        elif not query.trial_id:
            self._everywhere[query.number] = losses[0]
        elif query.number in self._newest:
            self._budgets.add(self._newest[query.number])

    def _vector(self, query: Query, assignment: Assignment) -> Vector:
        """The position of a config; a parameter that does not exist gets a random one, which
        favours neither side."""
        rng = random.Random(f"{query.seed}/absent")
        return tuple(
            place(one, assignment[one.name] if one.name in assignment else one.draw(rng))
            for one in self._searched
        )

    def _ranked(self) -> list[Vector]:
        """The configs from good to bad at the largest budget with enough of them; empty if there
        is none."""
        for step in sorted(self._budgets or {0}, reverse=True):
            losses = self._seen.get(step, {}) | self._everywhere
            if len(losses) >= self._least + 2:
                numbers = sorted(losses, key=lambda number: (losses[number], number))
                return [self._vectors[number] for number in numbers]
        return []

    def _likely(self, ranked: list[Vector], rng: random.Random) -> Assignment:
        terms = self._terms
        best = max(self._least, int(terms.top_n_percent * len(ranked) / 100))
        worst = max(self._least, len(ranked) - best)
        good, bad = self._density(ranked[:best]), self._density(ranked[-worst:])
        drawn = [good.draw(rng, widen=terms.bandwidth_factor) for _ in range(terms.num_samples)]
        chosen = max(drawn, key=lambda one: max(good.at(one), _LEAST) / max(bad.at(one), _LEAST))
        axes = zip(self._searched, chosen, strict=True)
        return {one.name: value_at(one, part) for one, part in axes}

    def _density(self, vectors: Sequence[Vector]) -> Density:
        return Density.of(vectors, self._sizes, least_width=self._terms.min_bandwidth)


def _check(name: str, value: float, is_fine: bool) -> None:
    if not is_fine:
        raise InvalidConfig(f"bohb_config[{name!r}] cannot be {value!r}")


def is_config_space(space: Any) -> bool:
    return is_of(space, "ConfigSpace", "ConfigurationSpace")


def read_config_space(space: Any, who: str) -> FlatParameters:
    """Its hyperparameters, in its order, which has parents first.

    Raises InvalidSearchSpace, naming the hyperparameter, for what `who` cannot search.
    """
    forbidden = _listed(space, "forbidden_clauses", "get_forbiddens")
    if forbidden:
        raise InvalidSearchSpace(
            f"space forbids ({forbidden[0]}), which {who} does not support: report a bad result "
            f"for such a config instead"
        )
    domains = {name: _domain(name, one, who) for name, one in dict(space).items()}
    when: dict[str, Conditions] = {name: {} for name in domains}
    for condition in _listed(space, "conditions", "get_conditions"):
        for child, parent, numbers in _parts(condition, domains, who):
            known = when[child].get(parent, numbers)
            when[child][parent] = known & numbers
    return FlatParameters(
        [
            DependentParameter(name=name, domain=domain, when=tuple(when[name].items()))
            for name, domain in domains.items()
        ],
        who=who,
    )


def _listed(space: Any, attribute: str, method: str) -> list[Any]:
    """An attribute of version 1 of the library, a method before it."""
    found = getattr(space, attribute, None)
    return list(getattr(space, method)() if found is None else found)


def _domain(name: str, one: Any, who: str) -> Float | Integer | Normal | Categorical:
    kind = type(one).__name__.removesuffix("Hyperparameter")
    match kind:
        case "UniformFloat":
            q = getattr(one, "q", None)
            return Float(lower=float(one.lower), upper=float(one.upper), log=one.log, q=q)
        case "UniformInteger":
            return Integer(lower=int(one.lower), upper=int(one.upper) + 1, log=one.log)
        case "Categorical":
            if getattr(one, "weights", None) is not None:
                raise InvalidSearchSpace(
                    f"{name}: {who} has no weights of categories: leave them out"
                )
            return Categorical(categories=tuple(map(unwrap_scalar, one.choices)))
        case "Ordinal":
            return Categorical(categories=tuple(map(unwrap_scalar, one.sequence)))
        case "Constant" | "Unparametrized":
            return fixed(unwrap_scalar(one.value))
        case "NormalFloat" if getattr(one, "lower", None) is None and not one.log:
            return Normal(mean=float(one.mu), sd=float(one.sigma))
        case "NormalFloat" | "NormalInteger":
            raise InvalidSearchSpace(f"{name}: {who} has no {kind} within bounds: {_UNIFORM}")
        case _:
            raise InvalidSearchSpace(f"{name}: {who} has no {kind}: {_UNIFORM}")


def _parts(
    condition: Any, domains: Mapping[str, Any], who: str
) -> Iterator[tuple[str, str, frozenset[int]]]:
    """Each child with a parent and the categories of the parent under which it exists."""
    match type(condition).__name__:
        case "AndConjunction":
            for part in condition.components:
                yield from _parts(part, domains, who)
            return
        case "EqualsCondition":
            values = [condition.value]
        case "InCondition":
            values = list(condition.values)
        case kind:
            raise InvalidSearchSpace(
                f"{condition}: {who} has no {kind}, only EqualsCondition, InCondition and "
                f"AndConjunction"
            )
    child, parent = condition.child.name, condition.parent.name
    domain = domains[parent]
    if not isinstance(domain, Categorical):
        raise InvalidSearchSpace(
            f"{child}: {who} supports conditions on choices only, and {parent} is a number"
        )
    numbers = [i for i, one in enumerate(domain.categories) if one in values]
    yield child, parent, frozenset(numbers)
