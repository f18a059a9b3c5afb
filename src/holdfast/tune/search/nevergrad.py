"""`NevergradSearch`: evolution strategies, swarms and many others, by the library nevergrad."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.lazy import Framework
from holdfast.scheduler.searchers.axes import bounds, varied
from holdfast.trial.domains import Categorical, Float, Integer, Normal
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.tune.search.library import LibrarySearch
from holdfast.tune.search.study import Losses, Query, SearchGoal, Study

_NUMBER = "number"
_BUDGET = 100
Conditions = tuple[tuple[str, int], ...]


class NevergradSearch(LibrarySearch):
    """Optimization without gradients, by any optimizer of Nevergrad.

    `optimizer`: one of `nevergrad.optimizers`, or its name; without it NGOpt, which chooses by
    the space and the budget. `optimizer_kwargs` are its arguments. Pass
    `{"budget": ...}`, the number of trials, because many optimizers depend on it (default for
    NGOpt: 100), and `num_workers` if several trials run at once. For the rest see
    `LibrarySearch`. It searches every kind of domain, also in a choice.

    J. Rapin, O. Teytaud, "Nevergrad, a gradient-free optimization platform" (2018).
    Raises ImportError, InvalidConfig.
    """

    library = Framework(title="Nevergrad", module="nevergrad", minimum="1.0")

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        if optimizer is not None and not isinstance(optimizer, str) and not callable(optimizer):
            raise InvalidConfig(
                f"optimizer must be a class of nevergrad.optimizers, or its name, not an "
                f"instance: {optimizer!r:.100}"
            )
        self._optimizer = optimizer or "NGOpt"
        # Without a budget NGOpt fails in a space of numbers.
        known = {} if optimizer else {"budget": _BUDGET}
        self._kwargs = {**known, **(optimizer_kwargs or {})}

    def open_study(self, parameters: Parameters, goal: SearchGoal, seed: int) -> _Study:
        from nevergrad import optimizers

        chosen = self._optimizer
        if isinstance(chosen, str):
            if chosen not in optimizers.registry:
                raise InvalidConfig(f"nevergrad.optimizers has no {chosen!r}")
            chosen = optimizers.registry[chosen]
        parametrization = _below(varied(parameters.all), ())
        parametrization.random_state.seed(seed)
        return _Study(parameters, chosen(parametrization=parametrization, **self._kwargs))


class _Study(Study):
    """A study whose optimizer has a state that changes only when it is asked.

    So each answered question is asked again, only for that state. If the answer is the same, as
    after a restore, the optimizer recognizes the config as its own.
    """

    def __init__(self, parameters: Parameters, optimizer: Any) -> None:
        self._parameters = parameters
        self._searched = varied(parameters.all)
        self._optimizer = optimizer
        self._candidates: dict[int, Any] = {}
        self._worst: float | None = None

    def ask(self, query: Query) -> Assignment:
        candidate = self._optimizer.ask()
        self._candidates[query.number] = candidate
        return self._assignment(candidate)

    def take(self, query: Query, assignment: Assignment) -> None:
        candidate = self._optimizer.ask()
        if self._assignment(candidate) != assignment:
            value = _value(self._searched, (), assignment)
            candidate = self._optimizer.parametrization.spawn_child(new_value=value)
        self._candidates[query.number] = candidate

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        """Pass on the end of a trial; a failure counts as the worst result so far."""
        candidate = self._candidates.pop(query.number)
        if losses is not None:
            self._worst = max(losses[0], losses[0] if self._worst is None else self._worst)
        loss = self._worst if losses is None else losses[0]
        if loss is not None:
            self._optimizer.tell(candidate, loss)

    def _assignment(self, candidate: Any) -> Assignment:
        flat: dict[str, Any] = {}
        _flatten(candidate.value, flat)
        whole = self._parameters.complete(flat, random.Random(0))
        return self._parameters.fit(whole, "NevergradSearch")


def _below(parameters: Sequence[Parameter], conditions: Conditions, **more: Any) -> Any:
    """The library's parametrization of the parameters that exist under these conditions."""
    from nevergrad import p

    below = [one for one in parameters if one.conditions == conditions]
    return p.Dict(**more, **{one.name: _expression(one, parameters) for one in below})


def _expression(parameter: Parameter, parameters: Sequence[Parameter]) -> Any:
    from nevergrad import p

    match parameter.domain:
        case Categorical():
            inside = [(*parameter.conditions, (parameter.name, i)) for i in range(parameter.count)]
            return p.Choice(
                [_below(parameters, one, **{_NUMBER: i}) for i, one in enumerate(inside)]
            )
        case Normal(mean=mean, sd=sd):
            return p.Scalar(init=mean).set_mutation(sigma=sd)
        case Float(log=log) | Integer(log=log) as domain:
            low, high = bounds(domain)
            number = p.Log(lower=low, upper=high) if log else p.Scalar(lower=low, upper=high)
            whole = isinstance(domain, Integer) and domain.q is None
            return number.set_integer_casting() if whole else number


def _flatten(value: Mapping[str, Any], flat: dict[str, Any]) -> None:
    for name, part in value.items():
        if isinstance(part, Mapping):
            flat[name] = part[_NUMBER]
            _flatten({key: below for key, below in part.items() if key != _NUMBER}, flat)
        else:
            flat[name] = part


def _value(
    parameters: Sequence[Parameter], conditions: Conditions, assignment: Assignment
) -> dict[str, Any]:
    """The inverse of `_flatten`."""
    found: dict[str, Any] = {}
    for one in parameters:
        if one.conditions == conditions:
            value = assignment[one.name]
            if isinstance(one.domain, Categorical):
                inside = (*conditions, (one.name, value))
                value = {_NUMBER: value, **_value(parameters, inside, assignment)}
            found[one.name] = value
    return found
