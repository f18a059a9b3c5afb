"""`HyperOptSearch`: tree-structured Parzen estimators, by the library hyperopt."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.lazy import Framework
from holdfast.scheduler.searchers.cube import bounds, varied
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.trial.space import Categorical, Float, Integer, Normal
from holdfast.tune.search.library import (
    AssignmentCodec,
    LibrarySearch,
    Losses,
    Query,
    SearchGoal,
    Study,
)

Conditions = tuple[tuple[str, int], ...]


class HyperOptSearch(LibrarySearch):
    """Tree-structured Parzen estimators (TPE), as HyperOpt has them.

    The first `n_initial_points` configs are drawn at random; of the others, the best share
    `gamma` make the model of good ones. For the rest see `LibrarySearch`; `random_state_seed` is
    its seed. Every kind of domain can be searched, also in a choice. `space` may have HyperOpt's
    own expressions, such as `hp.uniform("lr", 0, 1)`, also next to domains; so may the Tuner's.

    J. Bergstra, R. Bardenet, Y. Bengio, B. Kégl, "Algorithms for Hyper-Parameter Optimization"
    (2011). Raises ImportError, InvalidConfig.
    """

    library = Framework(title="HyperOpt", module="hyperopt", minimum="0.2.7")
    expressions = "hyperopt"

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        seed = random_state_seed
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        if not 0 < gamma <= 1:
            raise InvalidConfig(f"gamma must be above 0 and at most 1, not {gamma!r}")
        self._initial = n_initial_points
        self._gamma = gamma

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        from holdfast.tune.search.hyperopt_space import (
            ExpressionSpace,
            has_expressions,
            searched_part,
        )

        if not has_expressions(space):
            return super().read_space(space, is_own=is_own)
        part = space if is_own else searched_part(space)
        return ExpressionSpace(part, self._name, lambda one: _expression(one, ()))

    def open_study(self, parameters: Any, goal: SearchGoal, seed: int) -> _Study:
        from hyperopt.base import Domain

        if not isinstance(parameters, Parameters):
            return _Study(
                parameters, parameters.domain, parameters.labels, self._initial, self._gamma
            )
        searched = varied(parameters.all)
        domain = Domain(None, _below(searched, ()))
        names = [parameter.name for parameter in searched]
        return _Study(parameters, domain, names, self._initial, self._gamma)

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        if getattr(self._opened.terms, "computes", False):
            Searcher.recall(self, trial_id, config)  # asks again
        else:
            super().recall(trial_id, config)

    def take_added(self, trial_id: str, config: dict[str, Any]) -> bool:
        computes = getattr(self._opened.terms, "computes", False)
        return not computes and super().take_added(trial_id, config)


class _Study(Study):
    """A study that keeps trials by number, so that the order of their ends has no effect. The
    algorithm ignores running trials."""

    def __init__(
        self,
        terms: AssignmentCodec,
        domain: Any,
        names: Sequence[str],
        initial: int,
        gamma: float,
    ) -> None:
        from hyperopt import Trials, tpe

        self._terms = terms
        self._trials = Trials()
        self._names = names
        self._domain = domain
        self._algorithm = partial(tpe.suggest, n_startup_jobs=initial, gamma=gamma, verbose=False)

    def ask(self, query: Query) -> Assignment:
        [document] = self._algorithm([query.number], self._domain, self._trials, query.seed)
        chosen = document["misc"]["vals"]
        answer = {name: values[0] for name, values in chosen.items() if len(values)}
        return self._terms.complete(answer, random.Random(query.seed))

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        from hyperopt import JOB_STATE_DONE, STATUS_FAIL, STATUS_OK

        result = {"status": STATUS_FAIL}
        if losses is not None:
            result = {"status": STATUS_OK, "loss": losses[0]}
        number = query.number
        names = self._names
        misc = {
            "tid": number,
            "cmd": self._domain.cmd,
            "workdir": None,
            "idxs": {name: [number] if name in assignment else [] for name in names},
            "vals": {name: [assignment[name]] if name in assignment else [] for name in names},
        }
        [document] = self._trials.new_trial_docs([number], [None], [result], [misc])
        document["state"] = JOB_STATE_DONE
        self._trials.insert_trial_docs([document])
        self._trials.refresh()


def _below(parameters: Sequence[Parameter], conditions: Conditions) -> dict[str, Any]:
    """The library's expression for the parameters that exist under these conditions."""
    return {
        one.name: _expression(one, parameters)
        for one in parameters
        if one.conditions == conditions
    }


def _expression(parameter: Parameter, parameters: Sequence[Parameter]) -> Any:
    from hyperopt import hp

    name = parameter.name
    match parameter.domain:
        case Categorical():
            inside = [(*parameter.conditions, (name, i)) for i in range(parameter.count)]
            return hp.choice(name, [_below(parameters, conditions) for conditions in inside])
        case Normal(mean=mean, sd=sd, q=None):
            return hp.normal(name, mean, sd)
        case Normal(mean=mean, sd=sd, q=q):
            return hp.qnormal(name, mean, sd, q)
        case Float(q=q, log=log) | Integer(q=q, log=log) as domain:
            step = q or (1 if isinstance(domain, Integer) else None)
            low, high = bounds(domain)
            if low == high:
                return hp.quniform(name, low, high, step)
            if log:
                low, high = math.log(low), math.log(high)
                smooth, stepped = hp.loguniform, hp.qloguniform
            else:
                smooth, stepped = hp.uniform, hp.quniform
            if step is None:
                return smooth(name, low, high)
            return stepped(name, low, high, step)
