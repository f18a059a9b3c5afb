"""Checks whether a script that resumes an experiment describes the one that exists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.described import Described, state_of
from holdfast.experiment.folder.layout import log_names_of
from holdfast.experiment.folder.shell_command import holdfast_command
from holdfast.experiment.start.extension import SETTINGS, difference, stop_text
from holdfast.experiment.start.resume_words import resuming
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.trial.config import CheckpointConfig, FailureConfig, RunConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.stoppers import text_of
from holdfast.trial.tuning import ResumeConfig, TuneConfig

if TYPE_CHECKING:
    from holdfast.experiment.start.request import Request

_RESUMES = ("never", "auto", "must")
# Arguments of schedulers and searches that are compared elsewhere, or may change.
_COMPARED_APART = frozenset({"metric", "mode", "max_concurrent"})


def check_resume(resume: object, *, extend: bool, resume_config: ResumeConfig | None) -> bool:
    """Whether `fit` resumes an existing experiment. Raises InvalidConfig."""
    if resume not in _RESUMES:
        raise InvalidConfig(
            f"resume must be one of {_RESUMES}, not {resume!r:.100}{_resume_meant(resume)}"
        )
    if resume == "never" and (extend or resume_config is not None):
        raise InvalidConfig(
            "extend and resume_config say how fit() resumes an existing experiment: pass "
            "resume='auto' or 'must' with them"
        )
    return resume != "never"


def _resume_meant(given: object) -> str:
    """What to write for the values that `tune.run(resume=...)` of Ray takes."""
    try:
        how, config = resuming(given)
    except InvalidConfig:
        return ""
    if how == "never":
        return ". Use resume='never', the default"
    if config is None:
        return f". Use resume={how!r}"
    which = f", unfinished={config.unfinished!r}" if config.unfinished != "resume" else ""
    told = f"tune.ResumeConfig(errored={config.errored!r}{which})"
    return f". Use fit(resume={how!r}, resume_config={told})"


def settings_in(script: Request) -> dict[str, Any]:
    """The settings in a script that a restore can change."""
    return {
        "max_concurrent": script.max_concurrent,
        "reuse_actors": script.reuses_actors,
        "failure": script.run.failure_config,
        "checkpoint": script.run.checkpoint_config,
        **({"metric": script.metric} if script.metric else {}),
        **({"mode": script.mode} if script.mode else {}),
    }


def settings_of(
    path: object,
    max_concurrent_trials: int | None,
    failure_config: FailureConfig | None,
    checkpoint_config: CheckpointConfig | None,
) -> dict[str, Any]:
    """The settings that the arguments of a restore change, or a RunConfig given as its path.

    Raises InvalidConfig.
    """
    TuneConfig(max_concurrent_trials=max_concurrent_trials)
    settings: dict[str, Any] = {}
    if max_concurrent_trials is not None:
        settings["max_concurrent"] = max_concurrent_trials or None
    run, plain = path if isinstance(path, RunConfig) else RunConfig(), RunConfig()
    for field, given in (("failure", failure_config), ("checkpoint", checkpoint_config)):
        name = SETTINGS[field]
        anew: dict[str, Any] = {} if given is None else {name: given}
        said = getattr(replace(run, **anew), name)
        if anew or said != getattr(plain, name):
            settings[field] = said
    return settings


def check_limit(search: object, settings: Mapping[str, Any]) -> None:
    """Raises InvalidConfig if the restored search algorithm has a lower limit itself."""
    own = getattr(search, "max_concurrent", None) if isinstance(search, Searcher) else None
    limit = settings.get("max_concurrent", 0)
    if own is not None and (limit is None or limit > own):
        raise InvalidConfig(
            f"{type(search).__name__}(max_concurrent={own}) is the search algorithm's own limit, "
            f"which a restore cannot change: max_concurrent_trials can be {own} at most, not "
            f"{limit or 'without limit'}"
        )


def ignored_stop(config: RunConfig | None, spec: ExperimentSpec) -> Iterator[str]:
    """A notice of another `stop` in the RunConfig that only says where the experiment is."""
    stop = config.stop if config is not None else None
    if stop is not None and text_of(stop) != stop_text(spec):
        yield (
            f"restore() keeps stop={stop_text(spec)} and ignores the {text_of(stop)} of the "
            f"RunConfig. To change it: restore(..., stop=..., extend=True)"
        )


def ignored_arguments(kept: TuneConfig, script: TuneConfig) -> Iterator[str]:
    """A notice where a script makes the same scheduler or search with other arguments."""
    # Other search algorithms have learned since they were made, so they differ anyway.
    names = ["scheduler", *["search_alg"] * isinstance(script.search_alg, BasicVariantGenerator)]
    for name in names:
        begun_with = getattr(kept, name)
        if differs := differing_arguments(begun_with, getattr(script, name)):
            yield (
                f"{name}: {', '.join(differs)} differs from what the experiment was begun with. "
                f"A restore cannot change it: the earlier {type(begun_with).__name__} is used. "
                f"To use the new one, start a new run under another name=..."
            )


def differing_arguments(kept: object, script: object) -> list[str]:
    """The names of the arguments in which the two differ.

    Empty for objects of two classes, and for classes that are not holdfast's: their attributes
    may hold anything.
    """
    if type(kept) is not type(script) or not _is_ours(kept):
        return []
    before, after = _parts(kept), _parts(script)
    shared = [name for name in before if name in after and name not in _COMPARED_APART]
    return [name.lstrip("_") for name in shared if not _alike(before[name], after[name])]


def _alike(one: Any, other: Any) -> bool:
    """Whether they are equal, or cannot be compared."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or (math.isnan(one) and math.isnan(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, (str, bytes)):
        return bool(one == other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if _is_ours(one):
        return _alike(_parts(one), _parts(other))
    return getattr(one, "__qualname__", "") == getattr(other, "__qualname__", "")


def _is_ours(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == __name__.partition(".")[0]


def _parts(value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Described):
        return state_of(value)
    return dict(getattr(value, "__dict__", {}))


def fixed_differences(spec: ExperimentSpec, script: Request) -> Iterator[str]:
    """A line for each difference between script and experiment that no restore can change."""
    logs = log_names_of(spec.options.get("log_to_file", False))
    decides = bool(spec.scheduler or spec.options.get("search"))
    goals = (("metric", spec.metric, script.metric), ("mode", spec.mode, script.mode))
    for name, was, now in (
        *((name, was, now) for name, was, now in goals if was or decides or not now),
        ("search_alg", spec.options.get("search", script.search_name), script.search_name),
        ("scheduler", spec.scheduler, script.scheduler_name),
        ("log_to_file", logs, log_names_of(script.run.log_to_file)),
    ):
        if was != now:
            yield difference(name, was or None, now or None)


def settings_differ(path: str, fixed: Sequence[str], changes: Sequence[str]) -> InvalidConfig:
    """The error that keeps an experiment from being changed by accident."""
    shown = "\n  ".join(dict.fromkeys([*fixed, *changes]))
    of_space = any(line.startswith("param_space") for line in changes)
    shell = "" if of_space else ", or --extend to holdfast resume"
    how = (
        f"To apply this and keep all results, pass extend=True to restore(), or together with "
        f"resume={shell}. To start another experiment and keep that one, use another "
        f"RunConfig(name=...); to remove it first: {holdfast_command('rm', path)}"
    )
    if fixed:
        names = ", ".join(line.partition(":")[0] for line in fixed)
        how = (
            f"A restore cannot change {names}: restore the earlier value, or start a new "
            f"experiment under another name=..."
        )
    return InvalidConfig(
        f"The settings differ from those of the experiment in {path}:\n  {shown}\n{how}"
    )
