"""Errors for a keyword that a public class or function does not have: they name the right one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.errors import TuneError, for_the_caller
from holdfast.foreign import OF_STUDY, instead_of_scheduler, instead_of_search
from holdfast.plain_numbers import takes_numbers

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)

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
# Words of `tune.run`, of older versions of Ray, of Optuna and of others.
_OTHER_WORDS: Final[Mapping[str, str]] = {
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_score_attr": "checkpoint_score_attribute",
    "choices": "categories",
    "config": "param_space",
    "direction": "mode",
    "experiment_name": "name",
    "high": "upper",
    "keep_checkpoints_num": "num_to_keep",
    "local_dir": "storage_path",
    "low": "lower",
    "max_concurrent": "max_concurrent_trials",
    "n_jobs": "max_concurrent_trials",
    "n_trials": "num_samples",
    "num_trials": "num_samples",
    "param_space": "config",
    "pruner": "scheduler",
    "sampler": "search_alg",
    "search_space": "param_space",
    "storage": "storage_path",
    "study_name": "name",
    "timeout": "time_budget_s",
    "upload_dir": "storage_path",
}
# Those with which a value of another library has another form, or another meaning.
_OTHER_VALUES: Final = frozenset({"config", "search_space", "storage"})
_TPE: Final = "Use tune.search.OptunaSearch(sampler=optuna.samplers.TPESampler({}=...))"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "constant_liar": _TPE.format("constant_liar"),
    "load_if_exists": "Use fit(resume='auto')",
    "multivariate": _TPE.format("multivariate"),
    "n_startup_trials": _TPE.format("n_startup_trials"),
    "objective": "Use Tuner(objective, ...).fit()",
    "resources_per_trial": "Use Tuner(tune.with_resources(trainable, {'cpu': 2, 'gpu': 1}))",
    "resume": "Use fit(resume='auto')",
    "run_config": "Use Tuner(trainable, run_config=...).fit()",
    "seed": "Use search_alg=tune.search.BasicVariantGenerator(random_state=...)",
    "tune_config": "Use Tuner(trainable, tune_config=...).fit()",
    "study": f"Use {OF_STUDY}",
}
_DOMAINS: Final[Mapping[tuple[str, str], str]] = {
    ("tune.randint", "log"): "Use tune.lograndint(lower, upper)",
    ("tune.randint", "step"): "Use tune.qrandint(lower, upper, q)",
    ("with_resources", "resources_per_trial"): "Use resources",
    ("tune.uniform", "log"): "Use tune.loguniform(lower, upper)",
    ("tune.uniform", "step"): "Use tune.quniform(lower, upper, q)",
}
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
    """What to write in place of the keyword `given` of a call of `name`, whatever its value; "" if
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
    """What to write in place of `given=value`; "" if nothing is similar."""
    if text := _DOMAINS.get((name, given)):
        return text
    if given == "directions":
        use, _ = several_goals(None, value)
        return f"Use {use if name == 'OptunaSearch' else f'search_alg={use}'}"
    word = _OTHER_WORDS.get(given, given)
    if word in _keywords[name]:
        return f"Use {_valued(word, given, value)}"
    if given in _ELSEWHERE:
        return _ELSEWHERE[given]
    if owner := next((kind for kind in _ARGUMENTS if word in _keywords.get(kind, ())), None):
        is_told = given in ("direction", "pruner", "sampler")
        keyword = _valued(word, given, value) if is_told else f"{word}=..."
        return f"Use {_argument(name, owner, keyword)}"
    near = get_close_matches(given, _keywords[name], n=1, cutoff=0.65)
    return f"Did you mean {near[0]!r}?" if near else ""


def several_goals(metric: object, mode: object) -> tuple[str, str]:
    """The search algorithm and the scheduler for several goals, with the names and modes as far as
    they are known."""
    metrics = list(metric) if isinstance(metric, (list, tuple)) else "[...]"
    modes = [_mode(one) or one for one in mode] if isinstance(mode, (list, tuple)) else "[...]"
    return (
        f"tune.search.OptunaSearch(metric={metrics}, mode={modes})",
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
    """How to pass a keyword to `owner`, to someone who writes a call of `name`."""
    argument = f"{_ARGUMENTS[owner]}=tune.{owner}({keyword})"
    if owner in _TAKING.get(name, ()):
        return argument
    if owner in _IN_RUN_CONFIG and name != "RunConfig":
        argument = f"run_config=tune.RunConfig({argument})"
    return argument if name in ("Tuner", "RunConfig") else f"Tuner(..., {argument})"
