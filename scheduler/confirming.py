"""Fresh runs after the search: which configs run again, with which seeds, and how long.

The best of a hundred noisy trials was also lucky, so its value is better than its config. Only
runs that were not chosen by their value tell how good it is.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.best import is_of_search, is_too_short, longest, rank
from holdfast.trial.config import TRIAL_INDEX
from holdfast.trial.trial import Trial, TrialSpec
from holdfast.trial.values import LOOP_CONFIG, changed_tag

CANDIDATES: Final = 3
"""The number of configs that run again: with fewer, one lucky trial may keep out the best."""
SEEDS: Final = ("seed", "random_state", "random_seed")
"""The names of whole numbers in a config that a fresh run replaces: it would repeat its trial."""
_MOST_SEED = 2**31

Trials = Mapping[str, Trial]


def fresh_runs(spec: ExperimentSpec, trials: Trials) -> Iterator[TrialSpec]:
    """The runs that are still to be made, each with the id, number and folder of the trial that it
    confirms. A first run of each config comes before the second ones: the time may run out."""
    if not spec.confirm:
        return
    searched = [trial for trial in trials.values() if is_of_search(trial, spec.metric)]
    chosen, until = _candidates(spec, searched), 0
    if spec.scheduler:  # it may be what ends trials, and it sees no fresh run
        until = longest(searched)
    made = Counter(
        trial.spec.confirms
        for trial in trials.values()
        if trial.spec.confirms and not is_too_short(trial, until)
    )
    for number in range(spec.confirm):
        for trial in chosen:
            if made[trial.trial_id] <= number:
                yield _again(trial, number, spec.seed, until)


def _candidates(spec: ExperimentSpec, searched: Sequence[Trial]) -> list[Trial]:
    """The best trials of different configs, the best first. None if one of them has changed its
    config while it trained: it is no run of one config."""
    chosen: list[Trial] = []
    for trial in sorted(searched, key=lambda one: rank(one, spec.metric, spec.mode), reverse=True):
        if all(_of_any_seed(trial.config) != _of_any_seed(one.config) for one in chosen):
            chosen.append(trial)
        if len(chosen) == CANDIDATES:
            break
    return [] if any(one.changed_config is not None for one in chosen) else chosen


def _of_any_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without its seed: configs that differ only there run again as one."""
    return {key: value for key, value in _seeded(config, 0).items() if key != TRIAL_INDEX}


def _seeded(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The config, or the one that a trainer's loop gets inside of it, with this seed."""
    return {
        key: seed
        if key in SEEDS and type(value) is int
        else _seeded(value, seed)
        if key == LOOP_CONFIG and isinstance(value, Mapping)
        else value
        for key, value in config.items()
    }


def _again(trial: Trial, number: int, seed: int, until: int) -> TrialSpec:
    """Run `number` has the same seed for each config, so that all are compared on the same."""
    drawn = zlib.crc32(f"{seed} confirm {number}".encode()) % _MOST_SEED
    spec, config = trial.spec, _seeded(trial.spec.config, drawn)
    return replace(
        spec,
        config=config,
        tag=changed_tag(spec.tag, spec.index, spec.config, config),
        asked={},
        is_added=True,
        confirms=trial.trial_id,
        trains_until=until,
    )
