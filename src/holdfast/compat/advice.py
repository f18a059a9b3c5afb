"""Replacements of keywords, names and objects that holdfast does not have.

Scripts that come from Ray, Optuna and other libraries have them. Their errors name what to use;
`names.toml` has the words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, replace
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, TypeVar

from holdfast.errors import TuneError, for_the_caller
from holdfast.plain_numbers import takes_numbers

T = TypeVar("T")


def _assign(config: Assignable, name: str, value: Any) -> None:
    names = [field.name for field in fields(config)]
    if name not in names:
        from difflib import get_close_matches

        meant = get_close_matches(name, names, 1)
        hint = f": did you mean {meant[0]}?" if meant else f". It has {', '.join(names)}"
        raise AttributeError(f"{type(config).__name__} has no field {name!r}{hint}")
    object.__setattr__(config, name, value)


class Assignable:
    """Base class of dataclasses: only their fields can be assigned, so that a misspelt one is an
    error."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    if not TYPE_CHECKING:  # a type checker that saw it would let any name pass
        __setattr__ = _assign


def checked(config: T) -> T:
    """A copy of a config, and of the configs in it, with all values checked; anything else as it
    is.

    Raises InvalidConfig.
    """
    if not isinstance(config, Assignable):
        return config
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return replace(config, **{name: checked(value) for name, value in values.items()})


P = ParamSpec("P")
C = TypeVar("C", bound=type)


@cache
def tables() -> Mapping[str, Any]:
    """The content of `names.toml`. Only errors, and scripts of Ray, need it."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("holdfast.compat").joinpath("names.toml").read_text("utf-8"))


def table(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tables()[name]
    return found


@cache
def instead(kind: str, of: str, name: str) -> str | None:
    """The replacement of a name of the module `of` (kind "instead"), or of an attribute of the
    class `of` (kind "attribute"); None if nothing is known."""
    for one in tables()[kind]:
        if one["of"] == of and name in one["names"].split():
            return str(one["use"])
    return None


def explained_attribute(owner: object, name: str) -> Any:
    """For `__getattr__` of a public class: the AttributeError of an attribute that other libraries
    have says what to write."""
    try:
        return object.__getattribute__(owner, name)  # an error inside a property stays as it is
    except AttributeError as error:
        kinds = (kind.__name__ for kind in type(owner).__mro__)
        use = next(filter(None, (instead("attribute", kind, name) for kind in kinds)), None)
        if use is None or error.name != name:
            raise
        raise AttributeError(f"{error}. Use {use}", name=name, obj=owner) from None


# -- objects of other libraries -------------------------------------------------------------------

OF_STUDY: Final = "tune.search.OptunaSearch(study_name=..., storage=...), with those of the study"


def is_of(value: object, module: str, name: str = "") -> bool:
    """True if a class of `value`, with this `name` if one is given, is defined in `module` or in
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


# -- keywords -------------------------------------------------------------------------------------

# The argument that takes an object of each class.
_ARGUMENTS: Final = {
    "TuneConfig": "tune_config",
    "RunConfig": "run_config",
    "CheckpointConfig": "checkpoint_config",
    "FailureConfig": "failure_config",
    "SyncConfig": "sync_config",
}
_IN_RUN_CONFIG: Final = ("CheckpointConfig", "FailureConfig", "SyncConfig")
# Calls that take an object of these classes themselves.
_TAKING: Final = dict.fromkeys(("tune.run", "Experiment"), ("CheckpointConfig", "SyncConfig"))
# Those with which a value of another library has another form, or another meaning.
_OTHER_VALUES: Final = frozenset({"config", "search_space", "storage"})
_SHORT: Final = 60  # characters of a value that is repeated
_keywords: dict[str, tuple[str, ...]] = {}


def explains_keywords(kind: C) -> C:
    """Decorate a public class: the TypeError for unknown keywords says which ones to use, and in
    which class."""
    kind.__init__ = explains_call(kind.__name__)(kind.__init__)  # type: ignore[misc]
    return kind


def explains_call(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public function, which users know by this name, in the same way.

    If it takes any keywords (`**private`), those that begin with `_` pass. Its numbers are plain
    (see `plain_numbers`)."""

    def decorate(given: Callable[P, T]) -> Callable[P, T]:
        call = takes_numbers(given)
        known = inspect.signature(call).parameters
        any_kind = inspect.Parameter.VAR_KEYWORD
        takes_private = any(one.kind is any_kind for one in known.values())
        _keywords[name] = tuple(
            one for one, is_a in known.items() if one != "self" and is_a.kind is not any_kind
        )

        @wraps(call)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            unknown = {
                one: value
                for one, value in kwargs.items()
                if one not in _keywords[name] and not (takes_private and one.startswith("_"))
            }
            if unknown:
                raise TypeError(_text(name, unknown))
            try:
                return call(*args, **kwargs)
            except TuneError as error:
                raise for_the_caller(error) from error.__cause__

        return called

    return decorate


def advice(name: str, given: str) -> str:
    """The replacement of the keyword `given` of a call of `name`, whatever its value; "" if
    nothing is similar."""
    return _advice(name, given, None) if name in _keywords else ""


def _text(name: str, unknown: Mapping[str, Any]) -> str:
    advice = {given: _advice(name, given, value) for given, value in unknown.items()}
    if len(unknown) == 1:
        given = next(iter(unknown))
        told, fault = advice[given], f"{name}() has no parameter {given!r}"
    else:
        told = "; ".join(f"{given}: {_lower(text)}" for given, text in advice.items() if text)
        fault = f"{name}() has no parameters {', '.join(map(repr, unknown))}"
    if all(text.startswith("Use") for text in advice.values()):
        return f"{fault}. {told}"
    told = f" {told}." if told else ""
    return f"{fault}.{told.replace('?.', '?')} It has {', '.join(_keywords[name])}"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _advice(name: str, given: str, value: Any) -> str:
    """The replacement of `given=value`; "" if nothing is similar."""
    if text := table("keyword_advice_of").get(f"{name} {given}"):
        return str(text)
    if given == "directions":
        use, _ = several_goals(None, value, "OptunaSearch")
        return f"Use {use if name == 'OptunaSearch' else f'search_alg={use}'}"
    word = table("keywords").get(given, given)
    if word in _keywords[name]:
        return f"Use {_valued(word, given, value)}"
    if text := table("keyword_advice").get(given):
        return str(text)
    if owner := next((kind for kind in _ARGUMENTS if word in _keywords.get(kind, ())), None):
        is_told = given in ("direction", "pruner", "sampler")
        keyword = _valued(word, given, value) if is_told else f"{word}=..."
        return f"Use {_argument(name, owner, keyword)}"
    from difflib import get_close_matches

    near = get_close_matches(given, _keywords[name], n=1, cutoff=0.65)
    return f"Did you mean {near[0]!r}?" if near else ""


def several_goals(metric: object, mode: object, search: str = "AutoSearch") -> tuple[str, str]:
    """The search algorithm and the scheduler for several goals, with the names and modes as far as
    they are known."""
    metrics = list(metric) if isinstance(metric, (list, tuple)) else "[...]"
    modes = [_mode(one) or one for one in mode] if isinstance(mode, (list, tuple)) else "[...]"
    return (
        f"tune.search.{search}(metric={metrics}, mode={modes})",
        f"tune.schedulers.MultiObjectiveASHAScheduler(metrics={metrics}, modes={modes})",
    )


def _mode(direction: object) -> str:
    """`min` for `minimize` in any form, `max` for `maximize`; "" for anything else."""
    name = str(getattr(direction, "name", direction)).lower()
    return name[:3] if name.startswith(("min", "max")) else ""


def _valued(word: str, given: str, value: Any) -> str:
    """`mode='min'`: the keyword, with its value where that is known and short."""
    if given == "direction":
        return f"mode={_mode(value)!r}" if _mode(value) else "mode='min' or mode='max'"
    if given == "sampler":
        return f"search_alg={instead_of_search(value) or 'tune.search.OptunaSearch(sampler=...)'}"
    if given == "pruner":
        return f"scheduler={instead_of_scheduler(value) or 'tune.schedulers.ASHAScheduler()'}"
    is_plain = isinstance(value, (str, int, float)) and given not in _OTHER_VALUES
    is_short = is_plain and len(repr(value)) <= _SHORT and not (given == "n_jobs" and value < 1)
    return f"{word}={value!r}" if is_short else word


def _argument(name: str, owner: str, keyword: str) -> str:
    """The way to pass a keyword to `owner`, for someone who writes a call of `name`."""
    argument = f"{_ARGUMENTS[owner]}=tune.{owner}({keyword})"
    if owner in _TAKING.get(name, ()):
        return argument
    if owner in _IN_RUN_CONFIG and name != "RunConfig":
        argument = f"run_config=tune.RunConfig({argument})"
    return argument if name in ("Tuner", "RunConfig") else f"Tuner(..., {argument})"
