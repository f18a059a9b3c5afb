"""Wraps another scheduler and changes the resources of trials while they run: an allocation
function decides what each trial gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.described import Described
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.goal import Goal
from holdfast.scheduler.policies.ray_style import check_base
from holdfast.scheduler.policy import (
    AskUser,
    ChangeTrial,
    Decision,
    FIFOScheduler,
    NoMoreTrials,
    NoteRung,
    Observation,
    StopTrial,
    Tell,
    TrialAdded,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    UserAnswered,
    View,
)
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import MODES, lookup
from holdfast.trial.resources import PlacementGroupFactory, request, validated
from holdfast.trial.trial import Status, Trial

# Amounts are multiples of a ten-thousandth.
_LEAST = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingTrial:
    """A trial that runs or waits for resources, as an allocation function sees it.

    `placement_group_factory` holds the resources that it requests now, `base_resources` those that
    it began with. `last_result` has its iteration and the metric by which trials are compared.
    Only the trial that has just reported has its `config`.
    """

    trial_id: str
    status: str
    placement_group_factory: PlacementGroupFactory
    base_resources: PlacementGroupFactory
    last_result: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """All trials that share the machine, in the order in which they were suggested.

    `total_resources` are the resources to share. `expected` is the number of further trials that
    may run at the same time; None if only the resources limit it.
    """

    trials: Sequence[SharingTrial]
    total_resources: Mapping[str, float]
    expected: int | None = 0

    def get_trials(self) -> list[SharingTrial]:
        return list(self.trials)

    get_live_trials = get_trials

    @property
    def _resource_updater(self) -> Self:
        """The example of Ray's documentation asks this for `get_num_cpus()`."""
        return self

    def get_num_cpus(self) -> float:
        return self.total_resources.get("CPU", 0)

    def get_num_gpus(self) -> float:
        return self.total_resources.get("GPU", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingTerms:
    """Settings of the scheduler. `base_trial_resources` is what the trial in question began
    with."""

    base_trial_resources: PlacementGroupFactory
    metric: str | None = None
    mode: str | None = None

    @property
    def _base_trial_resources(self) -> PlacementGroupFactory:
        """So the example of Ray's documentation names it."""
        return self.base_trial_resources


Allocated = PlacementGroupFactory | Mapping[str, float] | None
AllocationFunction = Callable[[Any, Any, Mapping[str, Any], Any], Allocated]


class DistributeResources(Described):
    """Gives free resources to all trials in equal shares.

    Each trial has at least the resources that it began with, plus an equal number of steps of
    `increase_by`; if they cannot be shared evenly, the trials suggested first get one step more.
    By default `increase_by` is one CPU; for trials that use GPUs it is one GPU and the machine's
    number of CPUs per GPU. A trial gets at most `increase_by_times` steps (-1: no limit).
    `reserve_resources` are never given away. With `add_bundles` the trial gets more bundles of
    that size, for a worker group; otherwise its first bundle grows.

    It is called for one trial, after that trial has reported. As long as the search may suggest
    trials, free resources are kept for them, except what remains when `max_concurrent_trials` run.
    A trial grows only by what is free at that moment: the others return their surplus when they
    report.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        name = type(self).__name__
        self._step = validated(increase_by or {}, where=f"{name}(increase_by=...)")
        self._reserve = validated(reserve_resources or {}, where=f"{name}(reserve_resources=...)")
        require(
            not increase_by or any(self._step.values()),
            f"{name}(increase_by={increase_by!r}): pass an amount above 0",
        )
        require(
            type(increase_by_times) is int,
            f"{name}(increase_by_times={increase_by_times!r}): pass a whole number",
        )
        self._add_bundles = add_bundles
        self._most = increase_by_times if increase_by_times > 0 else None

    def __call__(
        self,
        tune_controller: Sharing,
        trial: SharingTrial,
        result: Mapping[str, Any],
        scheduler: SharingTerms,
    ) -> PlacementGroupFactory:
        """The resources that `trial` should have."""
        step = self._step or _step(trial.base_resources, tune_controller.total_resources)
        if tune_controller.expected is None:
            wanted = 0
        else:
            wanted = self._steps(tune_controller, trial, step, scheduler)
        steps = min(wanted, self._free_now(tune_controller, trial, step))
        if self._most is not None:
            steps = min(steps, self._most)
        return self._grown(trial.base_resources, step, steps)

    def _steps(
        self,
        sharing: Sharing,
        trial: SharingTrial,
        step: Mapping[str, float],
        terms: SharingTerms,
    ) -> int:
        """How many times `step` the trial should have in the long run."""
        assert sharing.expected is not None
        count = len(sharing.trials) + sharing.expected
        each, more = divmod(self._all_steps(sharing, trial, step), count)
        place = [one.trial_id for one in sharing.trials].index(trial.trial_id)
        return each + (place < more)

    def _all_steps(self, sharing: Sharing, trial: SharingTrial, step: Mapping[str, float]) -> int:
        """How many steps there are for all trials, if each has the resources that it began
        with."""
        held = [one.base_resources for one in sharing.trials]
        held += [trial.base_resources] * (sharing.expected or 0)
        return self._left(sharing, held, step)

    def _free_now(self, sharing: Sharing, trial: SharingTrial, step: Mapping[str, float]) -> int:
        """How many steps are free while the other trials keep what they have."""
        held = [
            one.placement_group_factory for one in sharing.trials if one.trial_id != trial.trial_id
        ]
        return self._left(sharing, [*held, trial.base_resources], step)

    def _left(
        self,
        sharing: Sharing,
        held: Sequence[PlacementGroupFactory],
        step: Mapping[str, float],
    ) -> int:
        amounts = [*(one.required_resources for one in held), self._reserve]
        fitting = [
            (sharing.total_resources.get(key, 0.0) - sum(one.get(key, 0.0) for one in amounts))
            / amount
            for key, amount in step.items()
            if amount
        ]
        return max(0, math.floor(min(fitting) + _LEAST))

    def _grown(
        self, base: PlacementGroupFactory, step: Mapping[str, float], steps: int
    ) -> PlacementGroupFactory:
        if not steps:
            return base
        first, *others = base.bundles
        if self._add_bundles:
            others += [dict(step)] * steps
        else:
            keys = dict.fromkeys((*first, *step))
            first = {
                key: round(first.get(key, 0.0) + steps * step.get(key, 0.0), 4) for key in keys
            }
        return PlacementGroupFactory([first, *others], base.strategy)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives free resources to the best trial; the others have what they began with.

    The best is the trial with the best newest report of the metric (`metric` and `mode`: by
    default those of the base scheduler, or of TuneConfig). The other parameters are those of
    DistributeResources.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        name = type(self).__name__
        require(mode is None or mode in MODES, f"{name}(mode={mode!r}): pass 'min' or 'max'")
        self.metric, self.mode = metric, mode

    def _steps(
        self,
        sharing: Sharing,
        trial: SharingTrial,
        step: Mapping[str, float],
        terms: SharingTerms,
    ) -> int:
        metric, mode = self.metric or terms.metric, self.mode or terms.mode
        if metric is None or mode is None:
            return 0
        goal = Goal(metric=metric, mode=mode, time_attr="")
        values = {one.trial_id: goal.value(one.last_result) for one in sharing.trials}
        known = {key: value for key, value in values.items() if value is not None}
        best = max(known, key=known.__getitem__, default=None)
        return self._all_steps(sharing, trial, step) if best == trial.trial_id else 0


EvenlyDistributeCPUsGPUs = DistributeResources


def _step(base: PlacementGroupFactory, total: Mapping[str, float]) -> dict[str, float]:
    gpus = total.get("GPU", 0.0)
    if not base.required_resources.get("GPU") or not gpus:
        return {"CPU": 1.0}
    return {"CPU": float(total.get("CPU", 0.0) // gpus), "GPU": 1.0}


# These are pure. A user's function runs outside the control loop.
_PURE = (DistributeResources, DistributeResourcesToTopJob)
_ABOUT = "sharing"
_EVENLY = DistributeResources()


class ResourceChangingScheduler(TrialScheduler):
    """Wraps another scheduler and changes the resources of trials while they run.

    The decision of `base_scheduler` (by default FIFOScheduler) about a trial comes first. If a
    trial that has reported continues, `resources_allocation_function(tune_controller, trial,
    result, scheduler)` returns the resources that it should have: a PlacementGroupFactory, a dict,
    or None for no change. The first argument is a `Sharing`, the second a `SharingTrial`, the last
    `SharingTerms`. If its resources change, the trial saves a checkpoint, waits until the
    resources are free and resumes; it reads them from `tune.get_context().get_trial_resources()`.

    The resources of a class trainable can change at each report. A function resumes from its
    newest checkpoint, so its resources change only at a report with a checkpoint.

    Raises InvalidConfig.
    """

    needs_checkpoints = True

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: AllocationFunction | None = _EVENLY,
    ) -> None:
        base = FIFOScheduler() if base_scheduler is None else base_scheduler
        function = resources_allocation_function
        name = type(self).__name__
        require(
            isinstance(base, TrialScheduler) and not isinstance(base, ResourceChangingScheduler),
            f"{name}(base_scheduler={base!r:.100}): pass another kind of scheduler",
        )
        check_base(base, name)
        if not callable(function):
            raise InvalidConfig(
                f"{name}(resources_allocation_function={function!r:.100}): pass a function. To "
                "leave resources unchanged, use the base scheduler itself"
            )
        self._base = base
        self._allocate: AllocationFunction = function
        self.metric, self.mode = base.metric, base.mode
        self.changes_configs = base.changes_configs
        self._goal: tuple[str | None, str | None] = (None, None)
        self._bases: dict[str, PlacementGroupFactory] = {}
        self._values: dict[str, Any] = {}
        self._alive: dict[str, None] = {}
        self._epoch = 1
        self._moving: set[str] = set()
        self._asked: set[str] = set()
        self._search_ended = False
        self._has_warned = False

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._base = self._base.begun(spec)
        fresh._goal = (spec.metric or self.metric, spec.mode or self.mode)
        if type(self._allocate) is DistributeResourcesToTopJob:
            metric, mode = self._allocate.metric, self._allocate.mode
            fresh._goal = (metric or fresh._goal[0], mode or fresh._goal[1])
            require(
                None not in fresh._goal,
                "DistributeResourcesToTopJob compares trials by a metric: set it and its mode "
                "in TuneConfig(metric=..., mode=...) or in its own parameters",
            )
        return fresh

    def follow(self, before: Trial, trial: Trial) -> None:
        self._base.follow(before, trial)

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if view.epoch != self._epoch:
            self._epoch = view.epoch
            self._alive = {key: None for key, one in view.trials.items() if _is_alive(one)}
        if isinstance(event, UserAnswered) and event.trial_id in self._asked:
            self._asked.discard(event.trial_id)
            return self._change(view, event.trial_id, _read(event.answer))
        decided = [self._signed(one) for one in self._base.decide(view, event)]
        match event:
            case TrialAdded(trial_id=trial_id):
                self._alive[trial_id] = None
                self._search_ended = False  # an extension may add more
            case NoMoreTrials():
                self._search_ended = True
            case TrialEnded(trial_id=trial_id):
                self._alive.pop(trial_id, None)
                decided += self._warn(view, view.trials[trial_id])
            case TrialReported(trial_id=trial_id):
                self._note(view, event)
                others = [one for one in decided if not isinstance(one, NoteRung)]
                is_free = all(getattr(one, "trial_id", "") != trial_id for one in others)
                if is_free and _has_saved(view, trial_id):
                    decided += self._allot(view, event)
            case _:
                pass
        return decided

    def _signed(self, decision: Decision) -> Decision:
        """An order to stop a trial, with the name of the scheduler that decided it."""
        if not isinstance(decision, StopTrial):
            return decision
        return replace(decision, by=decision.by or type(self._base).__name__)

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if _ABOUT not in question:
            return self._base.answer(question)
        sharing, trial, terms = _unpacked(question)
        given: Allocated = self._allocate(sharing, trial, question["result"], terms)
        try:
            return {} if given is None else _plain(request(given))
        except InvalidConfig as error:
            raise InvalidConfig(
                f"resources_allocation_function returned invalid resources: {error}"
            ) from error

    def _note(self, view: View, event: TrialReported) -> None:
        trial_id = event.trial_id
        self._moving.discard(trial_id)
        if self._goal[0] is not None and (value := lookup(event.row, self._goal[0])) is not None:
            self._values[trial_id] = value

    def _allot(self, view: View, event: TrialReported) -> list[Decision]:
        sharing = self._sharing(view)
        trial = next(one for one in sharing.trials if one.trial_id == event.trial_id)
        metric, mode = self._goal
        terms = SharingTerms(base_trial_resources=trial.base_resources, metric=metric, mode=mode)
        if type(self._allocate) in _PURE:
            given = self._allocate(sharing, trial, event.row, terms)
            return self._change(view, event.trial_id, None if given is None else request(given))
        self._asked.add(event.trial_id)
        question = _packed(sharing, trial, event.row, terms)
        config = view.trials[event.trial_id].config
        return [AskUser(trial_id=event.trial_id, question={**question, "config": config})]

    def _change(
        self, view: View, trial_id: str, wanted: PlacementGroupFactory | None
    ) -> list[Decision]:
        trial = view.trials[trial_id]
        if wanted is None or wanted == trial.spec.resources or trial.status is not Status.RUNNING:
            return []
        self._moving.add(trial_id)
        return [ChangeTrial(trial_id=trial_id, resources=wanted)]

    def _sharing(self, view: View) -> Sharing:
        trials = [view.trials[trial_id] for trial_id in self._alive]
        sharing = [self._shown(one) for one in trials if self._has_share(one)]
        most = view.spec.max_concurrent
        expected = None if most is None else max(0, most - len(sharing))
        return Sharing(
            trials=sharing,
            total_resources=dict(view.total_resources),
            expected=0 if self._search_ended else expected,
        )

    def _has_share(self, trial: Trial) -> bool:
        """Whether it holds resources: a paused trial does only while its resources change."""
        if trial.status is Status.PAUSED:
            return trial.trial_id in self._moving
        return _is_alive(trial)

    def _shown(self, trial: Trial) -> SharingTrial:
        trial_id, resources = trial.trial_id, trial.spec.resources
        metric = self._goal[0]
        scored = {metric: self._values[trial_id]} if trial_id in self._values and metric else {}
        return SharingTrial(
            trial_id=trial_id,
            status=trial.status.value,
            placement_group_factory=resources,
            base_resources=self._bases.setdefault(trial_id, resources),
            last_result={"training_iteration": trial.iteration, **scored},
        )

    def _warn(self, view: View, trial: Trial) -> list[Decision]:
        could_save = view.spec.saves_when_told or trial.next_checkpoint > 0
        if self._has_warned or could_save or not trial.iteration:
            return []
        self._has_warned = True
        text = (
            f"{trial.spec.name} reported no checkpoint, so {type(self).__name__} could not change "
            "its resources: it would have restarted from scratch"
        )
        return [Tell(text=text)]


def _is_alive(trial: Trial) -> bool:
    return not trial.status.is_final


def _has_saved(view: View, trial_id: str) -> bool:
    """True if the trial would lose no training if it restarted now."""
    return view.spec.saves_when_told or view.trials[trial_id].has_saved


def _plain(resources: PlacementGroupFactory) -> dict[str, Any]:
    bundles = [dict(bundle) for bundle in resources.bundles]
    least = resources.least_bundles
    return {"bundles": bundles, "strategy": resources.strategy, "least_bundles": least}


def _read(plain: Mapping[str, Any]) -> PlacementGroupFactory | None:
    return PlacementGroupFactory(**plain) if plain else None


def _packed(
    sharing: Sharing, trial: SharingTrial, row: Mapping[str, Any], terms: SharingTerms
) -> dict[str, Any]:
    """The arguments of the user's function, as plain data."""
    return {
        _ABOUT: {
            "trials": [_packed_trial(one) for one in sharing.trials],
            "total_resources": sharing.total_resources,
            "expected": sharing.expected,
        },
        "trial_id": trial.trial_id,
        "result": dict(row),
        "metric": terms.metric,
        "mode": terms.mode,
    }


def _packed_trial(trial: SharingTrial) -> dict[str, Any]:
    return {
        "trial_id": trial.trial_id,
        "status": trial.status,
        "last_result": trial.last_result,
        "now": _plain(trial.placement_group_factory),
        "base": _plain(trial.base_resources),
    }


def _unpacked(question: Mapping[str, Any]) -> tuple[Sharing, SharingTrial, SharingTerms]:
    about, trial_id = question[_ABOUT], question["trial_id"]
    trials = list(_unpacked_trials(about["trials"], trial_id, question["config"]))
    trial = next(one for one in trials if one.trial_id == trial_id)
    sharing = Sharing(
        trials=trials, total_resources=about["total_resources"], expected=about["expected"]
    )
    terms = SharingTerms(
        base_trial_resources=trial.base_resources,
        metric=question["metric"],
        mode=question["mode"],
    )
    return sharing, trial, terms


def _unpacked_trials(
    plain: Iterable[Mapping[str, Any]], asked_for: str, config: Mapping[str, Any]
) -> Iterable[SharingTrial]:
    for one in plain:
        yield SharingTrial(
            trial_id=one["trial_id"],
            status=one["status"],
            placement_group_factory=PlacementGroupFactory(**one["now"]),
            base_resources=PlacementGroupFactory(**one["base"]),
            last_result=one["last_result"],
            config=config if one["trial_id"] == asked_for else {},
        )
