"""`NevergradSearch`: evolution strategies, swarms and many others, by the library nevergrad."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from holdfast.compat.advice import is_of
from holdfast.global_numbers import seeded_numpy
from holdfast.lazy import Framework
from holdfast.scheduler.searchers.cube import bounds, varied
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.trial.space import Categorical, Float, Integer, Normal, same
from holdfast.tune.search.library import (
    AssignmentCodec,
    LibrarySearch,
    Losses,
    Query,
    SearchGoal,
    Study,
)

_NUMBER = "number"
_OPTIMIZERS = "nevergrad.optimization.base"
_SPACES = "nevergrad.parametrization"
_BUDGET = 100
Conditions = tuple[tuple[str, int], ...]


class NevergradSearch(LibrarySearch):
    """Optimization without gradients, by any optimizer of Nevergrad.

    `optimizer`: one of `nevergrad.optimizers`, or its name; without it NGOpt, which chooses by the
    space and the budget. `optimizer_kwargs` are its arguments. Pass `{"budget": ...}`, the number
    of trials, because many optimizers depend on it (default for NGOpt: 100), and `num_workers` if
    several trials run at once. `space` may also be a `Dict` or an `Instrumentation` of
    `nevergrad.p`. An `optimizer` that has such a parametrization needs no `space`; it is copied,
    and must not have been asked yet. If its parametrization is an array, `space` is a list of
    names. For the rest see `LibrarySearch`. It searches every kind of domain, also in a choice.

    J. Rapin, O. Teytaud, "Nevergrad, a gradient-free optimization platform" (2018).
    Raises ImportError, InvalidConfig.
    """

    library = Framework(title="Nevergrad", module="nevergrad", minimum="1.0")

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
        seed: int | None = None,
    ) -> None:
        is_made = is_of(optimizer, _OPTIMIZERS, "Optimizer")
        if is_made:
            _check_made(optimizer, space, optimizer_kwargs)
        elif optimizer is not None and not isinstance(optimizer, str) and not callable(optimizer):
            raise InvalidConfig(
                f"optimizer must be one of nevergrad.optimizers, its class or its name, not "
                f"{optimizer!r:.100}"
            )
        self._names: Sequence[str] = ()
        if is_made:
            self._names, space = space or (), optimizer.parametrization
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        self._made = optimizer if is_made else None
        self._optimizer = optimizer or "NGOpt"
        # Without a budget NGOpt fails in a space of numbers.
        known = {} if optimizer else {"budget": _BUDGET}
        self._kwargs = {**known, **(optimizer_kwargs or {})}

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        if is_own and is_of(space, _SPACES):
            from holdfast.tune.search.nevergrad_space import ValueSpace

            return ValueSpace(space, self._names)
        return super().read_space(space, is_own=is_own)

    def open_study(self, parameters: Any, goal: SearchGoal, seed: int) -> _Study:
        # The library draws some seeds from NumPy's global numbers.
        with seeded_numpy(seed):
            return self._opened_study(parameters, seed)

    def _opened_study(self, parameters: Any, seed: int) -> _Study:
        import numpy as np
        from nevergrad import optimizers

        numbers = np.random.RandomState(seed)
        if self._made is not None:
            optimizer = deepcopy(self._made)
            optimizer.parametrization.random_state = numbers
            return _Study(parameters, optimizer)
        chosen = self._optimizer
        if isinstance(chosen, str):
            if chosen not in optimizers.registry:
                raise InvalidConfig(f"nevergrad.optimizers has no {chosen!r}")
            chosen = optimizers.registry[chosen]
        codec = _Domains(parameters) if isinstance(parameters, Parameters) else parameters
        parametrization = deepcopy(codec.parametrization)
        parametrization.random_state = numbers
        return _Study(codec, chosen(parametrization=parametrization, **self._kwargs))


class _Study(Study):
    """A study whose optimizer has a state that changes only when it is asked.

    So each answered question is asked again, only for that state. If the answer is the same, as
    after a restore, the optimizer recognizes the config as its own.
    """

    def __init__(self, codec: Any, optimizer: Any) -> None:
        self._codec = codec
        self._optimizer = optimizer
        self._candidates: dict[int, Any] = {}
        self._worst: float | None = None

    def ask(self, query: Query) -> Assignment:
        with seeded_numpy(query.seed):
            candidate = self._optimizer.ask()
            found: Assignment = self._codec.read(candidate)
        self._candidates[query.number] = candidate
        return found

    def take(self, query: Query, assignment: Assignment) -> None:
        with seeded_numpy(query.seed):
            candidate = self._optimizer.ask()
            if not same(self._codec.read(candidate), assignment):
                value = self._codec.value(assignment)
                candidate = self._optimizer.parametrization.spawn_child(new_value=value)
        self._candidates[query.number] = candidate

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        """Pass on the end of a trial; a failure counts as the worst result so far."""
        candidate = self._candidates.pop(query.number)
        if losses is not None:
            self._worst = max(losses[0], losses[0] if self._worst is None else self._worst)
        loss = self._worst if losses is None else losses[0]
        if loss is not None:
            with seeded_numpy(query.seed):
                self._optimizer.tell(candidate, loss)


class _Domains:
    """Converts assignments of domains to the library's values and back."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._searched = varied(parameters.all)
        self.parametrization = _below(self._searched, ())

    def read(self, candidate: Any) -> Assignment:
        flat: dict[str, Any] = {}
        _flatten(candidate.value, flat)
        whole = self._parameters.complete(flat, random.Random(0))
        return self._parameters.fit(whole, "NevergradSearch")

    def value(self, assignment: Assignment) -> dict[str, Any]:
        return _value(self._searched, (), assignment)


def _check_made(optimizer: Any, space: Any, kwargs: Any) -> None:
    """Raises InvalidConfig for what does not fit an optimizer that has been made."""
    are_names = isinstance(space, (list, tuple)) and all(isinstance(one, str) for one in space)
    if space is not None and not are_names:
        raise InvalidConfig(
            "optimizer has a parametrization of its own: leave out space, or pass a list of names "
            "for the elements of its array"
        )
    if kwargs:
        raise InvalidConfig("optimizer has its arguments already: leave out optimizer_kwargs")
    if optimizer.num_ask or optimizer.num_tell:
        raise InvalidConfig(
            "optimizer has been asked already: pass a new one, and earlier results as "
            "points_to_evaluate and evaluated_rewards"
        )


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
