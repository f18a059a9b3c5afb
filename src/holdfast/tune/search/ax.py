"""`AxSearch`: Bayesian optimization with BoTorch, by the library ax-platform."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.compat.advice import is_of
from holdfast.dataclass import dataclass
from holdfast.described import Construction
from holdfast.lazy import Framework
from holdfast.scheduler.searchers.cube import bounds
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.trial.space import Categorical, Float, Integer, Normal
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.library import (
    AssignmentCodec,
    FlatParameters,
    LibrarySearch,
    Query,
    RebuiltStudy,
    SearchGoal,
    fixed,
    one_thread,
    one_torch_thread,
)

_KNOWN: Final = {
    "range": {"bounds", "value_type", "log_scale", "digits"},
    "choice": {"values", "value_type", "is_ordered", "sort_values", "dependents"},
    "fixed": {"value", "value_type"},
}
_EXAMPLE: Final = "{'name': 'lr', 'type': 'range', 'bounds': [0.001, 1.0]}"
_OPERATORS: Final = {"LEQ": "<=", "GEQ": ">="}
Entry = Mapping[str, Any]
Conditions = tuple[tuple[str, int], ...]


def read_entries(space: Sequence[Any], who: str) -> FlatParameters:
    """The parameters of a list of dicts, or of RangeParameterConfig and ChoiceParameterConfig.

    Raises InvalidSearchSpace, naming the parameter, for what `who` cannot search.
    """
    entries = [_entry(one) for one in space]
    by_name = {entry["name"]: entry for entry in entries}
    inside = {child for entry in entries for names in _below(entry).values() for child in names}
    if strange := sorted(inside - by_name.keys()):
        raise InvalidSearchSpace(f"{strange[0]} is a dependent, but space does not define it")
    listed = [
        one
        for entry in entries
        if entry["name"] not in inside
        for one in _with_dependents(entry, (), by_name, who)
    ]
    return FlatParameters(listed, who=who)


def _with_dependents(
    entry: Entry, conditions: Conditions, by_name: Mapping[str, Entry], who: str
) -> Iterator[Parameter]:
    name, domain = entry["name"], _domain(entry, who)
    yield Parameter(name=name, domain=domain, conditions=conditions)
    for value, children in _below(entry).items():
        assert isinstance(domain, Categorical)
        if value not in domain.categories:
            raise InvalidSearchSpace(
                f"{name}: dependents of {value!r}, which is not in its values"
            )
        number = domain.categories.index(value)
        for child in children:
            yield from _with_dependents(
                by_name[child], (*conditions, (name, number)), by_name, who
            )


def _below(entry: Entry) -> Mapping[Any, Sequence[str]]:
    return entry.get("dependents") or {}


def _entry(one: Any) -> Entry:
    """A parameter as a dict. Raises InvalidSearchSpace."""
    if is_of(one, "ax"):
        one = _as_dict(one)
    if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
        raise InvalidSearchSpace(f"space must have dicts such as {_EXAMPLE}, not {one!r:.100}")
    kind = one.get("type")
    if kind not in _KNOWN:
        raise InvalidSearchSpace(
            f"{one['name']}: type must be 'range', 'choice' or 'fixed', not {kind!r}"
        )
    given = {key for key, value in one.items() if value not in (None, False)}
    if strange := sorted(given - _KNOWN[kind] - {"name", "type"}):
        raise InvalidSearchSpace(f"{one['name']}: AxSearch does not support {strange[0]!r}")
    return one


def _domain(entry: Entry, who: str) -> Float | Integer | Categorical:
    name = entry["name"]
    if entry["type"] == "fixed":
        return fixed(entry.get("value"))
    if entry["type"] == "choice":
        return Categorical(categories=tuple(map(unwrap_scalar, entry.get("values") or ())))
    bounds = list(map(unwrap_scalar, entry.get("bounds") or ()))
    if len(bounds) != 2:
        raise InvalidSearchSpace(f"{name}: bounds must be two numbers, not {bounds!r:.100}")
    low, high = bounds
    is_log, digits = bool(entry.get("log_scale")), entry.get("digits")
    inferred = "int" if all(type(one) is int for one in bounds) else "float"
    match entry.get("value_type") or inferred:
        case "int":
            return Integer(lower=int(low), upper=int(high) + 1, log=is_log)
        case "float":
            q = None if digits is None else round(10.0**-digits, digits)
            return Float(lower=float(low), upper=float(high), log=is_log, q=q)
        case kind:
            raise InvalidSearchSpace(f"{name}: a range of {kind!r} is not one of numbers")


# -- a client's experiment ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsExperiment:
    """The experiment that an AxClient, or a Client of the newer interface, defines."""

    space: list[Entry]
    metric: str | None = None
    mode: str | None = None
    parameter_constraints: list[str]
    outcome_constraints: list[str]


def read_client(client: Any) -> ClientsExperiment | None:
    """The experiment of the client; None if it has none yet.

    Raises InvalidConfig for one that has trials or several objectives.
    """
    experiment = _experiment_of(client)
    if experiment is None:
        return None
    if experiment.trials:
        raise InvalidConfig(
            f"ax_client has {len(experiment.trials)} trials already, which AxSearch does not "
            f"take over: pass them as points_to_evaluate and evaluated_rewards"
        )
    space, goal = experiment.search_space, experiment.optimization_config
    metrics = [] if goal is None else list(goal.objective.metric_names)
    if len(metrics) > 1:
        raise InvalidConfig(f"AxSearch optimizes one metric, not {', '.join(metrics)}")
    is_least = goal is not None and goal.objective.minimize
    return ClientsExperiment(
        space=[_as_dict(one) for one in space.parameters.values()],
        metric=metrics[0] if metrics else None,
        mode=("min" if is_least else "max") if metrics else None,
        parameter_constraints=list(map(_linear, space.parameter_constraints)),
        outcome_constraints=[]
        if goal is None
        else list(map(_outcome_text, goal.outcome_constraints)),
    )


def _experiment_of(client: Any) -> Any:
    if not is_of(client, "ax"):
        raise InvalidConfig(f"ax_client must be an AxClient, not {client!r:.100}")
    try:
        return getattr(client, "experiment", None) or client._experiment
    except AssertionError:  # both say so if there is none
        return None


def _as_dict(one: Any) -> Entry:
    """A parameter of Ax's core, or a config object of its newer interface."""
    kind = type(one).__name__.removesuffix("Config").removesuffix("Parameter").lower()
    value_type = getattr(one.parameter_type, "name", one.parameter_type).lower()
    found = {"name": one.name, "type": kind, "value_type": value_type}
    if kind == "range":
        bounds = one.bounds if hasattr(one, "bounds") else (one.lower, one.upper)
        is_log = getattr(one, "log_scale", False) or getattr(one, "scaling", None) == "log"
        found |= {"bounds": list(bounds), "log_scale": is_log}
    elif kind == "choice":
        below = getattr(one, "dependents", None) or getattr(one, "dependent_parameters", None)
        found |= {"values": list(one.values), "dependents": below}
    else:
        found |= {"value": getattr(one, "value", None)}
    more = ("digits", "logit_scale", "is_fidelity", "is_task", "step_size")
    return found | {key: given for key in more if (given := getattr(one, key, None))}


def _linear(constraint: Any) -> str:
    terms = " + ".join(f"{weight}*{name}" for name, weight in constraint.constraint_dict.items())
    return f"{terms} <= {constraint.bound}"


def _outcome_text(constraint: Any) -> str:
    if getattr(constraint, "relative", False):
        raise InvalidConfig(f"ax_client: AxSearch has no baseline, as in {constraint}")
    names = getattr(constraint, "metric_names", None) or [constraint.metric.name]
    if len(names) > 1:
        raise InvalidConfig(f"ax_client: AxSearch takes one metric in a constraint: {constraint}")
    return f"{names[0]} {_OPERATORS[constraint.op.name]} {constraint.bound}"


_LOSS: Final = "loss"
_OUTCOME: Final = "outcome"
_CONSTRAINT: Final = re.compile(r"(.*[^<>=\s])\s*([<>]=)\s*([-+.\deE]+)")


class AxSearch(LibrarySearch):
    """Bayesian optimization with the models that Ax chooses for a space, most often a Gaussian
    process.

    `space` may also be a list of dicts, as Ax takes it. `parameter_constraints`: constraints for
    Ax, such as `["x1 + x2 <= 2"]`; `outcome_constraints`: bounds of other reported metrics, such
    as `["size <= 10"]`. `ax_client`: a client whose experiment has all this, and the metric; its
    generation strategy is not used. Other arguments go to `Client.configure_generation_strategy`,
    such as `method="quality"` or `initialization_budget` (the number of random configs at the
    start: 5). For the rest see `LibrarySearch`.

    M. Balandat et al., "BoTorch: A Framework for Efficient Monte-Carlo Bayesian Optimization"
    (2020). Raises ImportError, InvalidConfig; InvalidSearchSpace for normally distributed
    parameters.
    """

    library = Framework(title="Ax", module="ax", minimum="1", distributions=("ax-platform",))

    def __init__(
        self,
        space: Mapping[str, Any] | Sequence[Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parameter_constraints: Sequence[str] | None = None,
        outcome_constraints: Sequence[str] | None = None,
        ax_client: Any = None,
        *,
        evaluated_rewards: Sequence[Any] | None = None,
        seed: int | None = None,
        initialization_budget: int = 5,
        **more: Any,
    ) -> None:
        constraints, outcomes = list(parameter_constraints or ()), list(outcome_constraints or ())
        if ax_client is not None and (there := read_client(ax_client)) is not None:
            if space is not None or constraints or outcomes:
                raise InvalidConfig(
                    "ax_client has an experiment with a space already: leave out space, "
                    "parameter_constraints and outcome_constraints"
                )
            space, metric, mode = there.space, metric or there.metric, mode or there.mode
            constraints, outcomes = there.parameter_constraints, there.outcome_constraints
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        self._constraints = constraints
        self._outcomes = list(map(_outcome, outcomes))
        # The client itself may hold what cannot be stored.
        self._read = {
            "space": space,
            "metric": metric,
            "mode": mode,
            "parameter_constraints": constraints,
            "outcome_constraints": outcomes,
        }
        self._initial = initialization_budget
        self._more = more

    def construction(self) -> Construction:
        """With what was read from `ax_client` in its place."""
        made = super().construction()
        if made.argument("ax_client") is None:
            return made
        return made.without("ax_client").with_arguments(**self._read)

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        if isinstance(space, (list, tuple)):
            return read_entries(space, self._name)
        return super().read_space(space, is_own=is_own)

    def _goal(self, metric: Any, mode: Any) -> SearchGoal:
        """With the metrics of the constraints, which are passed on as they are."""
        goal = super()._goal(metric, mode)
        names = tuple(name for name, _ in self._outcomes)
        return SearchGoal(metrics=goal.metrics + names, modes=goal.modes + ("min",) * len(names))

    def open_study(self, parameters: Parameters, goal: SearchGoal, seed: int) -> _Study:
        from ax.api import client

        # The library logs each trial again with each question.
        client.logger.setLevel(logging.WARNING)
        bounds = [bound for _, bound in self._outcomes]
        return _Study(parameters, self._constraints, bounds, self._initial, self._more)


@dataclass(slots=True)
class _Study(RebuiltStudy):
    """Describes a choice by the numbers of its categories, and parameters inside it as dependent
    on that number."""

    who = "AxSearch"
    nests = True

    constraints: list[str]
    bounds: list[str]
    initial: int
    more: Mapping[str, Any]

    def axis(self, parameter: Parameter) -> Any:
        return _axis(parameter, self.searched)

    def answer(self, query: Query) -> Assignment | str:
        # The library itself would search for minutes before it reports this.
        points = math.prod(map(_points, self.searched))
        if len({tuple(one.assignment.values()) for one in self.tried}) >= points:
            return FINISHED
        with one_thread(), one_torch_thread():
            return self._answer(query)

    def _answer(self, query: Query) -> Assignment | str:
        from ax.exceptions.core import SearchSpaceExhausted

        client = self._client(query.seed)
        is_model = query.number >= self.initial and self.measured()
        client.configure_generation_strategy(
            **self.more,
            **({} if is_model else {"method": "random_search"}),
            initialization_budget=0,
            initialization_random_seed=query.seed,
            initialize_with_center=False,
        )
        try:
            [found] = client.get_next_trials(max_trials=1).values()
        except SearchSpaceExhausted:
            return FINISHED
        return dict(found)

    def _client(self, seed: int) -> Any:
        from ax.api.client import Client

        client = Client(random_seed=seed)
        client.configure_experiment(parameters=self.axes, parameter_constraints=self.constraints)
        outcomes = [f"{_OUTCOME}{i} {bound}" for i, bound in enumerate(self.bounds)]
        client.configure_optimization(objective=f"-{_LOSS}", outcome_constraints=outcomes or None)
        names = {one.name for one in self.searched}
        for one in self.tried:
            known = {k: value for k, value in one.assignment.items() if k in names}
            index = client.attach_trial(parameters=known)
            if one.loss is not None:
                others = {f"{_OUTCOME}{i}": other for i, other in enumerate(one.others)}
                client.complete_trial(index, raw_data={_LOSS: one.loss, **others})
            elif one.is_failed:
                client.mark_trial_failed(index)
        return client


def _outcome(constraint: str) -> tuple[str, str]:
    """The metric of an outcome constraint, and the rest of it. Raises InvalidConfig."""
    found = _CONSTRAINT.fullmatch(constraint.strip()) if isinstance(constraint, str) else None
    if found is None:
        raise InvalidConfig(
            f"outcome_constraints must be bounds of single metrics, such as 'size <= 10', not "
            f"{constraint!r:.100}"
        )
    metric, sign, bound = found.groups()
    return metric, f"{sign} {bound}"


def _points(parameter: Parameter) -> float:
    """The number of values; infinite for a parameter that does not always exist."""
    domain = parameter.domain
    if parameter.conditions or isinstance(domain, (Float, Normal)):
        return math.inf
    if isinstance(domain, Integer):
        low, high = bounds(domain)
        return int(high - low + 1)
    return parameter.count


def _axis(parameter: Parameter, parameters: Sequence[Parameter]) -> Any:
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    name = parameter.name
    match parameter.domain:
        case Categorical():
            inside = {
                i: [one.name for one in parameters if one.conditions[-1:] == ((name, i),)]
                for i in range(parameter.count)
            }
            return ChoiceParameterConfig(
                name=name,
                values=list(range(parameter.count)),
                parameter_type="int",
                is_ordered=False,
                dependent_parameters={i: names for i, names in inside.items() if names} or None,
            )
        case Normal():
            raise InvalidSearchSpace(
                f"{name}: AxSearch has no normal distribution: search it uniformly between bounds"
            )
        case Float(log=log) | Integer(log=log) as domain:
            # holdfast rounds to steps itself: the library's multiples of 0.1 include
            # 0.30000000000000004.
            low, high = bounds(domain)
            return RangeParameterConfig(
                name=name,
                bounds=(low, high),
                parameter_type="int" if isinstance(domain, Integer) else "float",
                scaling="log" if log else "linear",
            )
