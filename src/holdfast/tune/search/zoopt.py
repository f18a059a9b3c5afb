"""`ZOOptSearch`: sequential randomized coordinate shrinking, by the library zoopt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.global_numbers import seeded_numpy
from holdfast.lazy import Framework
from holdfast.scheduler.searchers.cube import place, value_at
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters, inside
from holdfast.trial.space import Categorical, choice, is_grid, quniform, randint, uniform
from holdfast.tune.search.library import (
    AssignmentCodec,
    LibrarySearch,
    Query,
    RebuiltStudy,
    SearchGoal,
)

_DIGITS: Final = 10
_FINEST: Final = 1e-9  # a step of this part of a range is none
# How often it may draw a known config, as in the library's own loop.
_TRIES: Final = 100


class ZOOptSearch(LibrarySearch):
    """Optimization without gradients by classification (SRacos), by ZOOpt.

    `budget`: the number of trials, some of them random at the start; required. `dim_dict`: the
    space, a dict of domains or of ZOOpt's tuples (`space` elsewhere). `parallel_num`: trials at
    once; with that many unfinished it waits. `algo` is "asracos", the only one. Other arguments go
    to `zoopt.Parameter`, such as `exploration_rate`. For the rest see `LibrarySearch`.

    Y.-Q. Hu, H. Qian, Y. Yu, "Sequential Classification-Based Optimization for Direct Policy
    Search" (2017). Raises ImportError, InvalidConfig; InvalidSearchSpace for parameters inside of
    a choice.
    """

    library = Framework(title="ZOOpt", module="zoopt", minimum="0.4.1")

    def __init__(
        self,
        algo: str = "asracos",
        budget: int | None = None,
        dim_dict: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parallel_num: int = 1,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
        seed: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(dim_dict, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        if algo.lower() != "asracos":
            raise InvalidConfig(f"algo must be 'asracos', not {algo!r}")
        if not isinstance(budget, int) or budget <= 0:
            raise InvalidConfig(
                f"ZOOptSearch(budget=...) must say how many trials there will be, not {budget!r}"
            )
        self._limit_to(parallel_num, "parallel_num")
        self._parallel = parallel_num
        self._more = {"budget": budget, **more}

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        return super().read_space(_of_dimensions(space) if is_own else space, is_own=is_own)

    def open_study(self, parameters: Parameters, goal: SearchGoal, seed: int) -> _Study:
        return _Study(parameters, self._parallel, self._more)


@dataclass(slots=True)
class _Study(RebuiltStudy):
    """Each number is one axis from 0 to 1, each choice one of unordered numbers."""

    who = "ZOOptSearch"

    parallel: int
    more: Mapping[str, Any]

    def axis(self, parameter: Parameter) -> tuple[Any, ...]:
        from zoopt import ValueType

        if isinstance(parameter.domain, Categorical):
            return (ValueType.DISCRETE, [0, parameter.count - 1], False)
        return (ValueType.CONTINUOUS, [0.0, 1.0], 10**-_DIGITS)

    def answer(self, query: Query) -> Assignment:
        with seeded_numpy(query.seed):
            found = self._suggested()
        if found is None:
            return self.at_random(query.seed)
        axes = zip(self.searched, found, strict=True)
        return {one.name: value_at(one, float(part)) for one, part in axes}

    def _suggested(self) -> list[float] | None:
        """The library's solution; None if the config must be drawn at random."""
        import zoopt
        from zoopt.algos.opt_algorithms.racos.sracos import SRacosTune

        terms = zoopt.Parameter(algorithm="racos", **self.more)
        points = self.by_point(_placed)
        if len(points) < terms.get_train_size():
            return None
        space = zoopt.Dimension2(self.axes)
        optimizer = SRacosTune(dimension=space, parameter=terms, parallel_num=self.parallel)
        for point, loss in points.items():
            solution = optimizer.get_objective().construct_solution(list(point))
            optimizer.complete(solution, loss)
        for _ in range(_TRIES):
            solution, is_new = optimizer.sample_solution(optimizer.ub)
            if is_new:
                found: list[float] = solution.get_x()
                return found
        return None


def _of_dimensions(space: Any, name: str = "") -> Any:
    """The space with a domain for each of the library's tuples, such as
    `(ValueType.CONTINUOUS, [0, 1], 1e-6)`."""
    if isinstance(space, dict) and not is_grid(space):
        return {key: _of_dimensions(one, inside(name, key)) for key, one in space.items()}
    from zoopt import ValueType

    match space:
        case (kind, [low, high], precision) if kind == ValueType.CONTINUOUS:
            is_fine = precision < _FINEST * (high - low)
            return uniform(low, high) if is_fine else quniform(low, high, precision)
        case (kind, [low, high], has_order) if kind == ValueType.DISCRETE:
            return randint(low, high + 1) if has_order else choice(range(low, high + 1))
        case (kind, [*values]) if kind == ValueType.GRID:
            return choice(values)
        case tuple() if space and type(space[0]) is int:
            raise InvalidSearchSpace(
                f"{name}: {space!r:.100} is not a dimension of ZOOpt: write "
                f"(ValueType.CONTINUOUS, [0, 1], 1e-6), (ValueType.DISCRETE, [1, 9], True) or "
                f"(ValueType.GRID, ['a', 'b'])"
            )
        case _:
            return space


def _placed(parameter: Parameter, value: Any) -> float:
    if isinstance(parameter.domain, Categorical):
        return int(value)
    return round(place(parameter, value), _DIGITS)
