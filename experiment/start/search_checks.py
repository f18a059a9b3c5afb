"""Warnings before the first trial: what is probably missing in the search space or the goal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.experiment.start.request import Request
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.space import is_searched

# They vary the configs of running trials.
_MUTATING = frozenset({"PopulationBasedTraining", "PB2", "PopulationBasedTrainingReplay"})
_SHOWN_CHARS = 60
# XGBoost and LightGBM compute each of the list.
_OF_LIBRARIES = frozenset({"eval_metric", "metric"})


def goal_notice(spec: ExperimentSpec) -> str:
    """A warning about a metric without a mode, or a mode without a metric; "" otherwise."""
    if spec.metric and not spec.mode:
        return (
            f"TuneConfig(metric={spec.metric!r}) has no mode, so nothing tells which trial is the "
            f"best. Add mode='min' or mode='max'; a restore accepts it, too"
        )
    if spec.mode and not spec.metric:
        return (
            f"TuneConfig(mode={spec.mode!r}) has no metric: add metric='NAME' of what is reported"
        )
    return ""


def same_configs_notice(request: Request, total: int | None) -> str:
    """A warning if all trials get one config, or there is one trial, because a list stands where a
    domain is meant."""
    space = dict(request.param_space)
    own_search = request.tune.search_alg is not None
    if total in (None, 0) or own_search or request.scheduler_name in _MUTATING:
        return ""
    lists = list(_lists(space))
    if not lists or is_searched(space):
        return ""
    if total == 1:
        return _one_trial_notice(lists)
    name, value = lists[0]
    meant = f"tune.choice({list(value)!r}) or tune.grid_search({list(value)!r})"
    if len(meant) > 2 * _SHOWN_CHARS:
        meant = "tune.choice([...]) or tune.grid_search([...])"
    is_range = len(value) == 2 and all(type(part) in (int, float) for part in value)
    if is_range and value[0] < value[1]:
        meant = f"tune.uniform({value[0]!r}, {value[1]!r}), {meant}"
    kind = type(value).__name__
    return (
        f"nothing varies: all {total} trials get the same config. {name} is a {kind}, which is "
        f"one value: did you mean {meant}?"
    )


def _one_trial_notice(lists: list[tuple[str, Any]]) -> str:
    """A list may well be one value, such as the sizes of layers: only one of different numbers or
    words is mentioned."""
    for name, value in lists:
        if len(set(map(repr, value))) == len(value) and all(map(_is_scalar, value)):
            shown = repr(list(value))
            shown = shown if len(shown) <= _SHOWN_CHARS else "[...]"
            return (
                f"{name} is one value, a {type(value).__name__} of {len(value)}. For a trial per "
                f"value write tune.grid_search({shown})"
            )
    return ""


def _is_scalar(value: object) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _lists(space: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in space.items():
        if isinstance(value, Mapping):
            yield from _lists(value, f"{prefix}{key}/")
        elif isinstance(value, (list, tuple)) and len(value) > 1 and key not in _OF_LIBRARIES:
            yield f"{prefix}{key}", value
