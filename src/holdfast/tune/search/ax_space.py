"""Reads the search spaces of Ax: lists of dicts, of its config objects, and experiments of a
client. Imports nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.foreign import is_of
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Parameter
from holdfast.trial.space import Categorical, Float, Integer
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.flat_parameters import FlatParameters, fixed

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
    """What an AxClient, or a Client of the newer interface, defines."""

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
        outcome_constraints=[] if goal is None else list(map(_outcome, goal.outcome_constraints)),
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


def _outcome(constraint: Any) -> str:
    if getattr(constraint, "relative", False):
        raise InvalidConfig(f"ax_client: AxSearch has no baseline, as in {constraint}")
    names = getattr(constraint, "metric_names", None) or [constraint.metric.name]
    if len(names) > 1:
        raise InvalidConfig(f"ax_client: AxSearch takes one metric in a constraint: {constraint}")
    return f"{names[0]} {_OPERATORS[constraint.op.name]} {constraint.bound}"
