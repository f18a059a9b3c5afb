"""Recognises objects of other libraries without importing them; says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

OF_STUDY: Final = "tune.search.OptunaSearch(study_name=..., storage=...), with those of the study"


def is_of(value: object, module: str, name: str = "") -> bool:
    """Whether a class of `value`, with this `name` if one is given, is defined in `module` or in
    one of its submodules."""
    return any(
        (kind.__module__ == module or kind.__module__.startswith(f"{module}."))
        and name in ("", kind.__name__)
        for kind in type(value).__mro__
    )


def instead_of_domain(value: object) -> str:
    """The domain to write for a distribution of another library; "" for any other value."""
    for module, told in _DOMAINS.items():
        if is_of(value, module):
            return told if isinstance(told, str) else told(value)
    return ""


def instead_of_scheduler(value: object) -> str:
    """The scheduler to write for a pruner of Optuna; "" for any other value."""
    if not is_of(value, "optuna.pruners"):
        return ""
    name = next((kind.__name__ for kind in type(value).__mro__ if kind.__name__ in _PRUNERS), "")
    return _PRUNERS.get(name, f"{_SCHEDULERS}ASHAScheduler() or {_SCHEDULERS}MedianStoppingRule()")


def instead_of_search(value: object) -> str:
    """The search algorithm to write for a sampler or a study of Optuna; "" for any other value."""
    if is_of(value, "optuna.samplers"):
        return f"tune.search.OptunaSearch(sampler={type(value).__name__}(...))"
    if is_of(value, "optuna.study", "Study"):
        return OF_STUDY
    return ""


_SCHEDULERS: Final = "tune.schedulers."
_PRUNERS: Final = {
    "HyperbandPruner": f"{_SCHEDULERS}HyperBandScheduler()",
    "MedianPruner": f"{_SCHEDULERS}MedianStoppingRule()",
    "NopPruner": "None",
    "PercentilePruner": f"{_SCHEDULERS}MedianStoppingRule()",
    "SuccessiveHalvingPruner": f"{_SCHEDULERS}ASHAScheduler()",
}


def _of_optuna(value: Any) -> str:
    """The same distribution, as text. Both bounds of Optuna's are included."""
    if (choices := getattr(value, "choices", None)) is not None:
        domain = f"tune.choice({list(choices)!r:.100})"
    elif (low := getattr(value, "low", None)) is None:
        domain = "tune.uniform(low, high)"
    else:
        domain = _numbers(value, low)
    return f"{domain}, or OptunaSearch(space={{...}}) for Optuna's distributions"


def _numbers(value: Any, low: Any) -> str:
    is_whole, is_log = isinstance(low, int), bool(getattr(value, "log", False))
    step = getattr(value, "step", None)
    if is_whole and step not in (None, 1):
        return f"tune.qrandint({low}, {value.high}, {step})"
    if is_whole:
        return f"tune.{'log' * is_log}randint({low}, {value.high + 1})"
    if step is not None:
        return f"tune.quniform({low:g}, {value.high:g}, {step:g})"
    return f"tune.{'log' * is_log}uniform({low:g}, {value.high:g})"


def _of_scipy(value: Any) -> str:
    name = getattr(getattr(value, "dist", None), "name", "")
    if name in ("loguniform", "reciprocal"):
        return "tune.loguniform(low, high)"
    if name == "randint":
        return "tune.randint(low, high)"
    return "tune.randn(mean, sd)" if name == "norm" else "tune.uniform(low, high)"


_ANY: Final = "tune.uniform(low, high), or "
_DOMAINS: Final[dict[str, str | Callable[[Any], str]]] = {
    "optuna.distributions": _of_optuna,
    "hyperopt.pyll.base": "tune.uniform(low, high), tune.choice([...]) and so on, or search with "
    "HyperOptSearch",
    "ConfigSpace.hyperparameters": f"{_ANY}TuneBOHB(space=...) with a ConfigurationSpace",
    "nevergrad.parametrization": f"{_ANY}NevergradSearch(space=...) with a whole ng.p.Dict(...)",
    "ax.api.configs": f"{_ANY}AxSearch(space=[...]) with a list",
    "ax.core.parameter": f"{_ANY}AxSearch(space=[...]) with a list",
    "scipy.stats._distn_infrastructure": _of_scipy,
    "ray.tune.search.sample": "the same with `from holdfast import tune`",
}
