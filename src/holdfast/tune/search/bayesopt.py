"""`BayesOptSearch`: a Gaussian process, by the library bayesian-optimization."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.described import Construction
from holdfast.lazy import Framework
from holdfast.plain_numbers import is_number
from holdfast.scheduler.searchers.cube import place, value_at
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters, inside
from holdfast.trial.space import Categorical, choice, is_grid, randint, uniform
from holdfast.tune.search.library import (
    AssignmentCodec,
    LibrarySearch,
    Query,
    RebuiltStudy,
    SearchGoal,
    one_thread,
)

_KINDS = ("ucb", "ei", "poi")


class BayesOptSearch(LibrarySearch):
    """Bayesian optimization with a Gaussian process, by bayesian-optimization.

    `utility_kwargs`: the function whose maximum is the next config: `kind` is "ucb" (upper
    confidence bound, with `kappa`), "ei" (expected improvement, with `xi`) or "poi" (probability
    of improvement, with `xi`). The first `random_search_steps` configs are drawn at random. With
    `skip_duplicate` no config runs twice; after `patience` suggestions in a row that were tried
    before, the search ends. Two configs are the same if their choices are, and their numbers as
    parts of their ranges to `repeat_float_precision` decimals. `analysis`: earlier trials to learn
    from, with `metric`. In `space`, `{"lr": (0, 1)}` is a number within bounds. For the rest see
    `LibrarySearch`; `random_state` is its seed.

    J. Snoek, H. Larochelle, R. P. Adams, "Practical Bayesian Optimization of Machine Learning
    Algorithms" (2012). Raises ImportError, InvalidConfig; InvalidSearchSpace for parameters inside
    a choice.
    """

    library = Framework(
        title="bayesian-optimization",
        module="bayes_opt",
        extra="bayesopt",
        minimum="2",
        distributions=("bayesian-optimization",),
    )

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: Mapping[str, Any] | None = None,
        random_state: int | None = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, random_state)
        self._utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, **(utility_kwargs or {})}
        if self._utility["kind"] not in _KINDS:
            raise InvalidConfig(
                f"utility_kwargs['kind'] must be one of {_KINDS}, not {self._utility['kind']!r}"
            )
        if patience <= 0:
            raise InvalidConfig(f"patience must be above 0, not {patience!r}")
        if type(repeat_float_precision) is not int or repeat_float_precision < 0:
            raise InvalidConfig(
                f"repeat_float_precision must be a number of decimals, not "
                f"{repeat_float_precision!r}"
            )
        self._digits = repeat_float_precision
        self._random_steps = random_search_steps
        self._verbose = verbose
        self._patience = patience if skip_duplicate else 0
        if analysis is not None:
            self.register_analysis(analysis)

    def register_analysis(self, analysis: Any) -> None:
        """Before `fit()`: learn from the trials of an ExperimentAnalysis or a ResultGrid, by this
        search's metric. Raises InvalidConfig without one."""
        if not isinstance(self.metric, str):
            raise InvalidConfig("BayesOptSearch(analysis=...) needs metric=..., too")
        self.add_evaluated_trials(analysis, self.metric)

    def construction(self) -> Construction:
        """Without the trials of `analysis`, which the constructor adds again."""
        return super().construction().without("analysis")

    def open_study(self, parameters: Parameters, goal: SearchGoal, seed: int) -> _Study:
        # A warning about each space with a choice; holdfast's tests cover choices.
        warnings.filterwarnings("ignore", "Non-float parameters are experimental")
        return _Study(
            parameters,
            self._utility,
            self._random_steps,
            self._patience,
            self._verbose,
            self._digits,
        )

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        return super().read_space(_of_bounds(space, "") if is_own else space, is_own=is_own)


@dataclass(slots=True)
class _Study(RebuiltStudy):
    """Each number is one axis from 0 to 1. The library maximizes, so losses are negated."""

    who = "BayesOptSearch"

    utility: Mapping[str, Any]
    random_steps: int
    patience: int
    verbose: int
    digits: int

    def axis(self, parameter: Parameter) -> tuple[Any, ...]:
        """Categories are words, because two numbers would be bounds."""
        if isinstance(parameter.domain, Categorical):
            return tuple(map(str, range(parameter.count)))
        return (0.0, 1.0)

    def answer(self, query: Query) -> Assignment | str:
        points = self.by_point(_placed, with_running=True)
        if query.number < self.random_steps or not points:
            found = self.at_random(query.seed)
        else:
            found = self._suggested(points, query.seed)
        if not self.patience:
            return found
        known = {self._rounded(one.assignment) for one in self.tried}
        rng = random.Random(f"{query.seed}/again")
        others = (self.parameters.complete({}, rng) for _ in range(self.patience))
        fresh = (one for one in (found, *others) if self._rounded(one) not in known)
        return next(fresh, FINISHED)

    def _rounded(self, assignment: Assignment) -> tuple[float, ...]:
        whole = self.whole(assignment, 0)
        return tuple(round(place(one, whole[one.name]), self.digits) for one in self.searched)

    def _suggested(self, points: Mapping[tuple[Any, ...], float], seed: int) -> Assignment:
        from bayes_opt import BayesianOptimization

        names = [one.name for one in self.searched]
        optimizer = BayesianOptimization(
            f=None,
            pbounds=dict(zip(names, self.axes, strict=True)),
            acquisition_function=_acquisition(self.utility),
            random_state=seed,
            verbose=self.verbose,
        )
        for point, loss in points.items():
            optimizer.register(dict(zip(names, point, strict=True)), -loss)
        with one_thread():
            found = optimizer.suggest()
        answer = {one.name: value_at(one, float(found[one.name])) for one in self.searched}
        return self.whole(answer, seed)


def _of_bounds(space: Any, name: str) -> Any:
    """The space with a domain for each tuple, which the library has for bounds and for choices."""
    match space:
        case dict() if not is_grid(space):
            return {key: _of_bounds(one, inside(name, key)) for key, one in space.items()}
        case (low, high) if isinstance(space, tuple) and is_number(low) and is_number(high):
            return uniform(low, high)
        case (low, high, kind) if kind is int:
            return randint(low, high + 1)
        case (low, high, kind) if kind is float:
            return uniform(low, high)
        case tuple() if len(space) > 1 and all(isinstance(one, str) for one in space):
            return choice(space)
        case (low, high) if is_number(low) and is_number(high):
            raise InvalidSearchSpace(
                f"{name}: {space!r} is a list, which could be bounds or one value: write "
                f"({low!r}, {high!r}) for bounds, and put a fixed value into param_space"
            )
        case _:
            return space


def _placed(parameter: Parameter, value: Any) -> Any:
    return str(value) if isinstance(parameter.domain, Categorical) else place(parameter, value)


def _acquisition(utility: Mapping[str, Any]) -> Any:
    from bayes_opt import acquisition

    match utility["kind"]:
        case "ucb":
            return acquisition.UpperConfidenceBound(kappa=utility["kappa"])
        case "ei":
            return acquisition.ExpectedImprovement(xi=utility["xi"])
        case _:
            return acquisition.ProbabilityOfImprovement(xi=utility["xi"])
