"""A snapshot has every attribute of the machine that does not say otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from holdfast.experiment.records.journal import pack, unpack
from holdfast.scheduler.codec import Record, recalled, snapshot
from holdfast.scheduler.events import Recalled, Resumed, Suggested
from holdfast.scheduler.kept import NOT_KEPT
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.state import State
from holdfast.schema import DEEPEST, UnreadableRecord
from holdfast.testing.rehearsal import NOT_IN_SNAPSHOTS, Rehearsal, trial_spec
from holdfast.tune.schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

POLICIES: dict[str, TrialScheduler] = {
    "asha": ASHAScheduler(metric="loss", mode="min"),
    "hyperband": HyperBandScheduler(metric="loss", mode="min"),
    "median": MedianStoppingRule(metric="loss", mode="min"),
    "pbt": PopulationBasedTraining(
        metric="loss", mode="min", perturbation_interval=2, hyperparam_mutations={"lr": [0.1, 0.2]}
    ),
}


def under_way(policy: TrialScheduler | None = None) -> Rehearsal:
    """One of three trials has ended, and two have reported."""
    run = Rehearsal(
        policy=policy, capacity={"CPU": 3}, metric="loss", mode="min", num_samples=3,
        scheduler="" if policy is None else type(policy).__name__,
    )  # fmt: skip
    for number in range(3):
        run.suggest()
        run.start(f"t{number}")
        run.report(f"t{number}", {"loss": 1.0}, checkpoint=True)
    run.returns("t0")
    run.exits("t0")
    return run


def anew(machine: Machine) -> Record:
    """In the form read from the disk."""
    return unpack(pack(recalled(machine), 5.0))


@pytest.mark.parametrize("name", POLICIES)
def test_a_scheduler_with_a_state_decides_on(name: str) -> None:
    run = under_way(POLICIES[name])
    known = snapshot(run.machine)
    run.machine, record = Machine(POLICIES[name]), anew(run.machine)
    run.machine.replay(record.event, now=record.now)
    assert snapshot(run.machine) == known
    for iteration in range(6):
        for trial_id in ("t1", "t2"):
            if run.machine.is_current(trial_id, run.trial(trial_id).attempt):
                run.report(trial_id, {"loss": 1.0 + iteration}, checkpoint=True)
    resumed = Resumed(epoch=2, capacity={"CPU": 3})
    run.handle(resumed)
    assert all(trial.attempt for trial in run.machine.trials.values())


def test_a_config_may_be_nested_as_deep_as_in_a_trial() -> None:
    deep: Any = 1
    for _ in range(DEEPEST - 2):
        deep = (deep,)
    run = Rehearsal()
    run.handle(Suggested(spec=replace(trial_spec(0), config={"deep": deep})))
    machine = Machine()
    machine.replay(anew(run.machine).event, now=5.0)
    assert machine.trials["t0"].config == {"deep": deep}


def test_a_state_that_no_run_has_written_is_refused() -> None:
    event = recalled(under_way().machine)
    for change in ({"trials": 5}, {"queue": ["nobody"]}, {"now": -1.0}, {"new": 1}):
        other = Recalled(spec=event.spec, state={**event.state, **change})
        with pytest.raises(UnreadableRecord):
            Machine().replay(other, now=1.0)


# Derived while trials are added.
DERIVED = {"folders", "clones"}


def test_every_attribute_says_whether_a_snapshot_has_it() -> None:
    machine = Machine()
    for owner in (machine, machine.placement, machine.expected):
        named = get_type_hints(type(owner)).keys()
        assert vars(owner).keys() == named, "annotate it in the body of the class"


def test_only_what_another_attribute_says_or_what_outlives_no_event_is_left_out() -> None:
    hints = get_type_hints(State, include_extras=True)
    left_out = {
        name
        for name, hint in hints.items()
        if get_origin(hint) is Annotated and NOT_KEPT in get_args(hint)
    }
    assert left_out == NOT_IN_SNAPSHOTS | DERIVED


def test_an_attribute_that_is_added_is_in_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.scheduler import codec as module

    monkeypatch.setitem(State.__annotations__, "mood", "str")
    monkeypatch.setattr(State, "mood", "calm", raising=False)
    for cached in (module._attributes, module._reader):
        cached.cache_clear()
    try:
        machine = Machine()
        machine.mood = "eager"  # type: ignore[attr-defined]
        plain = snapshot(machine)
        assert plain["mood"] == "eager"
        assert vars(from_snapshot(plain))["mood"] == "eager"
    finally:
        for cached in (module._attributes, module._reader):
            cached.cache_clear()


def test_a_rare_attribute_is_written_only_where_there_is_something() -> None:
    run = Rehearsal()
    assert not snapshot(run.machine).keys() & {"saving", "returning", "questions", "waits"}
    run.suggest()
    run.machine.saving["t0"] = 1
    assert snapshot(run.machine)["saving"] == {"t0": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"saving": {"t7": 1}},
        {"withheld": {"t7": 1}},
        {"returning": ["t7"]},
        {"questions": {"t7": {}}},
        {"queue": ["t7"]},
        {"waits": {"t7": "retry"}},
        {"holds": {"t7": {"amounts": {"CPU": 1}}}},
        {"idle": {"t7": {"amounts": {"CPU": 1}}}},
    ],
    ids=str,
)
def test_a_trial_that_is_not_there_is_refused_wherever_it_is_named(
    change: dict[str, object],
) -> None:
    with pytest.raises(UnreadableRecord, match="it names a trial that it does not have: 't7'"):
        from_snapshot(snapshot(Rehearsal().machine) | change)
