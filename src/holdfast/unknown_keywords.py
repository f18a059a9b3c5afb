"""Errors for a keyword that a public class or function does not have: they name the right one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Final, ParamSpec, TypeVar

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
# Words of `tune.run`, of older versions of Ray, of Optuna and of others.
_OTHER_WORDS: Final[Mapping[str, str]] = {
    "config": "param_space",
    "direction": "mode",
    "experiment_name": "name",
    "local_dir": "storage_path",
    "max_concurrent": "max_concurrent_trials",
    "n_jobs": "max_concurrent_trials",
    "n_trials": "num_samples",
    "num_trials": "num_samples",
    "pruner": "scheduler",
    "sampler": "search_alg",
    "search_space": "param_space",
    "study_name": "name",
    "timeout": "time_budget_s",
    "upload_dir": "storage_path",
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    "address": (
        "Leave it out for this machine; for several, use cluster=, as in "
        "cluster=holdfast.cluster.SSH(['node1', 'node2']) or cluster='slurm://gpu?nodes=4'"
    ),
    "resources_per_trial": "Use Tuner(tune.with_resources(trainable, {'cpu': 2, 'gpu': 1}))",
    "resume": "Use fit(resume='auto')",
    "seed": "Use search_alg=tune.search.BasicVariantGenerator(random_state=...)",
}
_INIT: Final = "holdfast.init"
# Of `ray.init()`, without a meaning here.
_NOT_NEEDED: Final = frozenset(
    (
        *("object_store_memory", "labels", "namespace", "job_config", "storage", "log_to_driver"),
        *("include_dashboard", "dashboard_host", "dashboard_port", "allow_multiple"),
        *("configure_logging", "logging_level", "logging_format", "logging_config"),
        *("enable_resource_isolation", "system_reserved_cpu", "system_reserved_memory"),
        *("_memory", "_node_ip_address", "_node_name", "_plasma_directory", "_redis_password"),
        *("_system_config", "_temp_dir"),
    )
)
_keywords: dict[str, tuple[str, ...]] = {}


def explains_keywords(kind: C) -> C:
    """Decorate a public class: the TypeError for an unknown keyword says which one to use, and in
    which class."""
    _keywords[kind.__name__] = tuple(inspect.signature(kind).parameters)
    kind.__init__ = _explained(kind.__name__, kind.__init__)  # type: ignore[misc]
    return kind


def explains_keywords_of(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public function, which messages call `name`, in the same way."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        _keywords[name] = tuple(inspect.signature(function).parameters)
        return _explained(name, function)

    return decorate


def _explained(name: str, init: Callable[P, T]) -> Callable[P, T]:

    @wraps(init)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return init(*args, **kwargs)
        except TypeError:
            unknown = [keyword for keyword in kwargs if keyword not in _keywords[name]]
            if not unknown:
                raise
            raise TypeError(_text(name, unknown[0])) from None

    return called


def _text(name: str, given: str) -> str:
    fault = f"{name}() has no parameter {given!r}"
    word = _OTHER_WORDS.get(given, given)
    if word in _keywords[name]:
        return f"{fault}. Use {word}"
    if name == _INIT and given in _NOT_NEEDED:
        return f"{fault}. It is not needed here: leave it out"
    if given in _ELSEWHERE:
        return f"{fault}. {_ELSEWHERE[given]}"
    if owner := next((kind for kind in _ARGUMENTS if word in _keywords.get(kind, ())), None):
        return f"{fault}. Use {_argument(name, owner, word)}"
    near = get_close_matches(given, _keywords[name], n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"{fault}.{meant} It has {', '.join(_keywords[name])}"


def _argument(name: str, owner: str, word: str) -> str:
    """How to pass `word` to `owner`, to someone who writes a call of `name`."""
    argument = f"{_ARGUMENTS[owner]}=tune.{owner}({word}=...)"
    if owner in _IN_RUN_CONFIG and name != "RunConfig":
        argument = f"run_config=tune.RunConfig({argument})"
    return argument if name in ("Tuner", "RunConfig") else f"Tuner(..., {argument})"
