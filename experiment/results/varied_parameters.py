"""Finds the parameters that an experiment varies, by names such as `net/width`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.trial import Trial
from holdfast.trial.values import flatten, key_name, readable


def params_of(trial: Trial) -> dict[str, Any]:
    """A trial's whole config, flat and as JSON values: `{"net/width": 64}`."""
    return flatten(readable(trial.config))


def varied_names(spec: ExperimentSpec, trials: Iterable[Trial]) -> list[str]:
    """The parameters that the search space varies, in its order.

    For a choice among dicts or lists, the parameters inside are named. Without a space in the
    records, the parameters in which the trials differ.
    """
    configs = [params_of(trial) for trial in trials]
    names = dict.fromkeys(name for config in configs for name in config)
    heads = [key_name(tuple(part["path"])) for part in spec.whole_space if part["varied"]]
    if heads:
        return [n for head in heads for n in names if n == head or n.startswith(f"{head}/")]
    return [name for name in names if _differs(configs, name)]


def _differs(configs: Sequence[Mapping[str, Any]], name: str) -> bool:
    first = configs[0].get(name)
    return any(name not in config or config[name] != first for config in configs)
