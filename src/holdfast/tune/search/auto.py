"""`AutoSearch`: holdfast's own search, for every space. It needs NumPy, and no other library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.described import Construction
from holdfast.scheduler.searchers.cube import varied
from holdfast.scheduler.searchers.searcher import SearchPlan
from holdfast.text.values import counted
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.parameters import Parameters, inside
from holdfast.trial.space import Categorical, check_called, grid_values, is_grid
from holdfast.tune.search.library import LibrarySearch, SearchGoal, Study
from holdfast.tune.search.warm_start import earlier_runs, first_points, told

# The number of trials if the user gives none: per parameter, and its limits.
_PER_PARAMETER: Final = 10
_FEWEST, _MOST = 30, 200


class AutoSearch(LibrarySearch):
    """Bayesian optimization by a Gaussian process, for every kind of space.

    The first 8 configs are spread over the space. Then a Gaussian process learns from the trials,
    and the config with the highest expected improvement comes next. If a scheduler stops trials
    early, the process learns from what they reported on the way: the iteration is one more
    coordinate. A trial that runs counts with the value that the process expects of it. A failed
    trial is as bad as the worst half. A value that is better than all others by far does not blind
    it for the others: losses above the median count only to twice its distance from the best.
    The process has the likelier one of two priors: a smooth loss, or one with much noise. If the
    run has a time limit, the highest expected improvement per second comes next, as a second
    process expects the time that a config takes.

    It searches every domain, also in a choice; a choice of numbers is taken as ordered. The values
    of a `grid_search` are tried in turn, in as many trials each, and the rest is searched for
    each. With several metrics, each config improves a mean of them with other weights. No config
    is suggested twice; the search is over if there is no new one.

    `warm_start`: earlier runs, each as its results or its path. Their best configs are the first
    ones, four in all, one of each run in turn. They are read now and stored with the search, so
    that `Tuner.restore` does not need their folders. Configs that the space does not have are left
    out, as are failed trials. The metric and the mode must be those of this search.

    D. R. Jones, M. Schonlau, W. J. Welch, "Efficient Global Optimization of Expensive Black-Box
    Functions" (1998); improvement per second as in J. Snoek, H. Larochelle, R. P. Adams,
    "Practical Bayesian Optimization of Machine Learning Algorithms" (2012); several metrics as in
    J. Knowles, "ParEGO" (2006). For the parameters see `LibrarySearch`.

    Raises InvalidConfig, ExperimentNotFound.
    """

    takes_many_metrics = True
    _budget_s: float | None = None

    def __init__(
        self,
        space: Any = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        seed: int | None = None,
        *,
        warm_start: Sequence[Any] = (),
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        self._earlier = earlier_runs(warm_start, metric, mode)

    def plan(self, space: Mapping[str, Any]) -> SearchPlan:
        """Ten trials for each parameter, at least 30 and at most 200."""
        terms = self._searched(space)
        count = len(varied(terms.all))
        begins = f"; {told(self._earlier, terms)}" if self._earlier else ""
        return SearchPlan(
            told=f"a Gaussian process learns from the trials and searches "
            f"{counted(count, 'parameter', 'parameters')}{begins}",
            trials=min(max(_PER_PARAMETER * count, _FEWEST), _MOST),
        )

    def check_space(self, metric: str | None, mode: str | None, config: Mapping[str, Any]) -> Any:
        goal, terms, points = super().check_space(metric, mode, config)
        if self._earlier and len(goal.metrics) > 1:
            raise InvalidConfig("warm_start is for one metric")
        for one in self._earlier:
            one.check(goal.metrics[0], goal.modes[0])
        return goal, terms, [*points, *first_points(self._earlier, terms, points)]

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        self._budget_s = spec.get("time_budget_s")
        return super().set_search_properties(metric, mode, config, **spec)

    def construction(self) -> Construction:
        """With what it has read of the earlier runs: their folders may be gone later."""
        made = super().construction()
        if not self._earlier:
            return made
        return made.with_arguments(warm_start=[one.plain() for one in self._earlier])

    def read_space(self, space: Any, *, is_own: bool) -> GridParameters:
        if is_own:
            check_called(space, "space")
        return GridParameters(space, who=self._name, named=not is_own)

    def open_study(self, parameters: GridParameters, goal: SearchGoal, seed: int) -> Study:
        from holdfast.tune.search.auto_study import AutoStudy

        return AutoStudy(
            parameters,
            seed=seed,
            grids=parameters.grids,
            metrics=len(goal.metrics),
            budget_s=self._budget_s,
        )


class GridParameters(Parameters):
    """The parameters of a space whose grids are choices; `grids` are the names of these."""

    def __init__(self, space: Mapping[str, Any], *, who: str, named: bool) -> None:
        self.grids = frozenset(_grids(space, ""))
        super().__init__(_with_choices(space), who=who, named=named)


def _with_choices(space: Any) -> Any:
    """The space with a choice in place of each grid."""
    if is_grid(space):
        return Categorical(categories=tuple(grid_values(space) or ()))
    if isinstance(space, Mapping):
        return {key: _with_choices(part) for key, part in space.items()}
    return space


def _grids(space: Any, name: str) -> Iterator[str]:
    if is_grid(space):
        yield name
    elif isinstance(space, Mapping):
        for key, part in space.items():
            yield from _grids(part, inside(name, key))
