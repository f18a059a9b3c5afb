"""A study that asks an Optuna sampler for one trial at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import optuna
from optuna.trial import TrialState

from holdfast.dataclass import dataclass
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment
from holdfast.tune.search.library import Losses, Query, SearchGoal, Study

_NOTHING: Mapping[str, Any] = MappingProxyType({})
# The user attribute that identifies a trial in a storage after a restore.
_OURS = "holdfast"
_DEPTH = 4
# These learn from the reports of pruned trials, or from no trial.
_USE_PRUNED = frozenset(
    {"TPESampler", "RandomSampler", "GridSampler", "QMCSampler", "BruteForceSampler"}
)
_DIRECTIONS = {"min": "minimize", "max": "maximize"}
# These samplers use only the parameters and values of trials, so a trial can be added as it is.
# Others store notes in a trial when they suggest it, so they must suggest it again.
_LOOK_AT_VALUES = frozenset({"RandomSampler", "TPESampler", "GPSampler", "BruteForceSampler"})


class Asks(Protocol):
    """Asks an Optuna trial for its parameters."""

    @property
    def asked(self) -> Mapping[str, str]:
        """The distributions, as JSON, of those that no space defines."""

    def ask(self, trial: Any) -> Assignment:
        """The values of all parameters."""

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        """`assignment` in Optuna's values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A trial that an earlier incarnation has added to the storage.

    `last_step` is that of its last intermediate value, -1 if it has none.
    """

    trial: optuna.trial.FrozenTrial
    last_step: int

    @property
    def has_ended(self) -> bool:
        return bool(self.trial.state.is_finished())

    @property
    def has_failed(self) -> bool:
        return self.trial.state is TrialState.FAIL


class OptunaStudy(Study):
    """`asks` asks a trial for its parameters.

    The sampler's generators are seeded before each question, so that its answer depends only on
    the existing trials. Trials are never copied all at once.
    """

    def __init__(
        self,
        asks: Asks,
        goal: SearchGoal,
        *,
        sampler: Any,
        seed: int,
        storage: Any,
        study_name: str | None,
    ) -> None:
        self._asks = asks
        self._signs = [1.0 if mode == "min" else -1.0 for mode in goal.modes]
        self._sampler = sampler or optuna.samplers.TPESampler(seed=seed)
        kind = type(self._sampler)
        is_optunas = kind.__module__.startswith("optuna.")
        self._looks_at_values = is_optunas and kind.__name__ in _LOOK_AT_VALUES
        self._is_kept = storage is not None
        self._has_constraints = getattr(self._sampler, "_constraints_func", None) is not None
        # The trials that violate a constraint.
        self.infeasible: set[str] = set()
        self._has_steps = len(goal.metrics) == 1 and (self._is_kept or not is_optunas)
        self._storage = optuna.storages.get_storage(storage)
        self._study = _opened(self._sampler, goal, self._storage, study_name)
        # Not for the others, which would learn nothing from such trials.
        self._notes_pruned = self._is_kept and (
            len(goal.metrics) > 1 or (is_optunas and kind.__name__ in _USE_PRUNED)
        )
        self._study.stop = self._stop  # called by samplers that have nothing left to suggest
        self._is_over = False
        self._there = dict(_stored(self._study)) if self._is_kept else {}
        # By the number of the query.
        self._running: dict[int, optuna.Trial | _Stored] = {}
        self._steps: dict[int, int] = {}

    @property
    def asked(self) -> Mapping[str, str]:
        """See `Searcher.asked_space`."""
        return self._asks.asked

    def ask(self, query: Query) -> Assignment | str | None:
        if self._is_over:
            return FINISHED
        self._end_unanswered(query)
        self._make_ready(query)
        return self._asked(query)

    def take(self, query: Query, assignment: Assignment) -> Assignment | None:
        key = query.trial_id or f"point {sorted(assignment.items(), key=str)}"
        if (stored := self._there.get(key)) is not None:
            self._running[query.number] = stored
            if stored.last_step >= 0:
                self._steps[query.number] = stored.last_step
            return None
        notes = not query.is_given and not self._looks_at_values
        if notes and self._asked_again(query, assignment):
            return None
        fixed = self._asks.fixed(assignment)
        self._study.enqueue_trial(fixed, user_attrs={_OURS: key} if self._is_kept else None)
        if query.is_given:
            self._make_ready(query)
        whole = self._asked(query, fixed if query.trial_id else {})
        return whole if query.is_given else None

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        has_steps = self._has_steps or (query.pruned and len(losses) == 1)
        # An attempt after a failure repeats steps; Optuna keeps the first value.
        is_new = step > self._steps.get(query.number, -1)
        if not (has_steps and is_new):
            return
        trial = self._continued(query)
        self._steps[query.number] = step
        (value,) = self._values(losses)
        if isinstance(trial, optuna.Trial):
            trial.report(value, step)
        elif not trial.has_ended:
            self._storage.set_trial_intermediate_value(self._id_of(trial), step, value)

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        is_pruned = losses is not None and self._is_pruned(query, losses)
        if is_pruned and losses is not None and query.number not in self._steps:
            self.saw(query, 0, losses)
        running = self._running[query.number] if losses is None else self._continued(query)
        del self._running[query.number]
        has_steps = self._steps.pop(query.number, None) is not None
        if isinstance(running, _Stored) and running.has_ended:
            self._weigh(query, running.trial)  # told before a restore
            return
        if self._has_constraints:
            self._note(running, query.row)
        trial = running.trial.number if isinstance(running, _Stored) else running
        if is_pruned or (losses is None and query.pruned and not has_steps):
            state, values = TrialState.PRUNED, None
        else:
            state = TrialState.FAIL if losses is None else None
            values = None if losses is None else self._values(losses)
        told = self._study.tell(trial, values, state=state, skip_if_finished=True)
        self._weigh(query, told)

    def _weigh(self, query: Query, told: optuna.trial.FrozenTrial) -> None:
        if any(value > 0 for value in told.system_attrs.get("constraints") or ()):
            self.infeasible.add(query.trial_id)

    def _note(self, trial: optuna.Trial | _Stored, row: Mapping[str, Any]) -> None:
        """Give the constraints the last report of a trial: they read it in `trial.user_attrs`."""
        number = trial._trial_id if isinstance(trial, optuna.Trial) else self._id_of(trial)
        for name, value in row.items():
            if isinstance(value, (bool, int, float, str)):
                self._storage.set_trial_user_attr(number, name, value)

    def _continued(self, query: Query) -> optuna.Trial | _Stored:
        """The trial of the study that gets new results.

        Optuna never changes a finished trial: one that had failed and was resumed is added again.
        """
        running = self._running[query.number]
        if isinstance(running, optuna.Trial) or not running.has_failed:
            return running
        failed = running.trial
        again = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=failed.params,
            distributions=failed.distributions,
            user_attrs=failed.user_attrs,
            system_attrs=failed.system_attrs,
            intermediate_values=failed.intermediate_values,
        )
        self._study.add_trial(again)
        stored = self._running[query.number] = dict(_stored(self._study))[query.trial_id]
        return stored

    def _id_of(self, stored: _Stored) -> int:
        study_id = self._storage.get_study_id_from_name(self._study.study_name)
        number = stored.trial.number
        return int(self._storage.get_trial_id_from_study_id_trial_number(study_id, number))

    def _is_pruned(self, query: Query, losses: Losses) -> bool:
        if query.trial_id:
            return query.pruned and self._notes_pruned
        return query.pruned and len(losses) == 1

    def _make_ready(self, query: Query) -> None:
        """Make the sampler's answer depend only on the study and the query."""
        if self._looks_at_values:
            # What it caches between two questions would be missing after a restore.
            self._study.sampler = deepcopy(self._sampler)
        reseed(self._study.sampler, query.seed)

    def _asked(self, query: Query, given: Mapping[str, Any] = _NOTHING) -> Assignment:
        """Ask for the next trial of the study, which may be an enqueued one. `given` is what it
        must have."""
        trial = self._running[query.number] = self._study.ask()
        if self._is_kept and not query.is_given:
            trial.set_user_attr(_OURS, query.trial_id)
        try:
            assignment = self._asks.ask(trial)
            if query.is_given:
                _check_given(given, assignment, trial.distributions)
            return assignment
        except BaseException:  # also of the user's function: no one will run this trial
            self._study.tell(trial, state=TrialState.FAIL)
            raise

    def _end_unanswered(self, query: Query) -> None:
        """End the trial of a question whose answer was lost: the process was killed meanwhile."""
        stored = self._there.get(query.trial_id)
        if stored is not None and not stored.has_ended:
            self._study.tell(stored.trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _asked_again(self, query: Query, assignment: Assignment) -> bool:
        """Let the sampler store the same notes in a trial as before a restore.

        Returns whether it suggests the same config. It may not if it had fewer results at the
        time.
        """
        self._make_ready(query)
        self._asked(query)
        trial: Any = self._running[query.number]
        fixed = self._asks.fixed(assignment)
        if all(fixed.get(name) == value for name, value in trial.params.items()):
            return True
        self._study.tell(trial, state=TrialState.FAIL)
        return False

    def _values(self, losses: Losses) -> list[float]:
        return [sign * loss for sign, loss in zip(self._signs, losses, strict=True)]

    def _stop(self) -> None:
        self._is_over = True


def _check_given(
    given: Mapping[str, Any], assignment: Assignment, distributions: Mapping[str, Any]
) -> None:
    """Raises InvalidSearchSpace for a point of the user that the space does not have. What a
    function asks for is known only now."""
    label = f"points_to_evaluate: {dict(given)!r:.200}"
    for name, value in given.items():
        if name not in assignment:
            known = ", ".join(map(repr, assignment))
            raise InvalidSearchSpace(f"{label}: {name} is not in the search space, only {known}")
        kind: Any = distributions.get(name)
        if hasattr(kind, "low") and not kind.low <= value <= kind.high:
            raise InvalidSearchSpace(
                f"{label}: {name} must be from {kind.low} to {kind.high}, not {value!r}"
            )


def _opened(sampler: Any, goal: SearchGoal, storage: Any, study_name: str | None) -> Any:
    directions = [_DIRECTIONS[mode] for mode in goal.modes]
    said = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(said, optuna.logging.WARNING))
    try:
        study = optuna.create_study(
            storage=storage,
            sampler=sampler,
            study_name=study_name,
            directions=directions,
            load_if_exists=True,
        )
    finally:
        optuna.logging.set_verbosity(said)
    there = [direction.name.lower() for direction in study.directions]
    if there != directions:
        raise InvalidConfig(
            f"the study {study_name!r} in this storage has the directions {there}, not "
            f"{directions}: give another study_name"
        )
    return study


def _stored(study: Any) -> Iterator[tuple[str, _Stored]]:
    """The trials of a storage that an earlier incarnation has added, by their keys."""
    for trial in study.get_trials(deepcopy=False):
        if _OURS in trial.user_attrs:
            last_step = max(trial.intermediate_values, default=-1)
            yield trial.user_attrs[_OURS], _Stored(trial=trial, last_step=last_step)


def reseed(sampler: Any, seed: int) -> None:
    """Seed every generator of a sampler.

    Optuna's own `reseed_rng` uses a seed from the system, and the seed of the constructor only
    determines where the generators start.
    """
    for number, generator in enumerate(_generators(sampler, _DEPTH, set())):
        own = (seed + number) % 2**32
        if isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            bits.state = type(bits)(own).state
        else:
            generator.seed(own)


def _generators(part: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    if id(part) in seen or not depth:
        return
    seen.add(id(part))
    if isinstance(part, (np.random.RandomState, np.random.Generator, random.Random)):
        yield part
    elif isinstance(lazy := getattr(part, "rng", None), np.random.RandomState):
        yield from _generators(lazy, depth, seen)
    elif isinstance(attributes := getattr(part, "__dict__", None), Mapping):
        for attribute in list(attributes.values()):
            yield from _generators(attribute, depth - 1, seen)
