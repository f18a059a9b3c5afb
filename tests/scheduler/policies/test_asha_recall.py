"""ASHA after a restore from a snapshot, against ASHA that has seen every event."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.codec import recalled, snapshot
from holdfast.scheduler.events import SearchEnded
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from tests.rig.scheduler.playing import Play, Step

VALUES = [0.1, 0.2, 0.2, 0.7, 3, math.nan, math.inf, None, "much"]


SCHEDULER = ASHAScheduler(max_t=8)


class Mine(ASHAScheduler):
    """A user's own, which may keep anything."""


def restored(machine: Machine) -> Machine:
    """The machine that a snapshot's file gives, which has no policy."""
    return from_snapshot(json.loads(json.dumps(snapshot(machine))))


def state(machine: Machine) -> list[Any]:
    """Everything that decides about the next report."""
    policy = machine.policy
    assert isinstance(policy, ASHAScheduler)
    rungs = [rung for bracket in policy._brackets for rung in bracket.rungs]
    return [
        (r.milestone, r._judged, sorted(r._quantile._below), sorted(r._quantile._above))
        for r in rungs
    ]


def play(
    scheduler: ASHAScheduler, life: Mapping[tuple[int, int], Step], seed: int, **spec: Any
) -> Machine:
    run = Rehearsal(policy=scheduler, metric="loss", scheduler="ASHAScheduler", **spec)
    Play(
        run,
        lambda index, at: life.get((index, at), "returns"),
        trials=6,
        seed=seed,
        saves_every=3,
        crashes=[15, 40],
    ).to_the_end()
    return run.machine


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(1, 9)),
        st.sampled_from(["raises", *({} if v is None else {"loss": v} for v in VALUES)]),
        max_size=54,
    ),
    st.integers(1, 3),
    st.sampled_from(["min", "max"]),
    st.booleans(),
    st.integers(0, 9),
    st.integers(0, 2),
)
def test_what_it_recalls_is_what_it_has_seen(
    life: dict[tuple[int, int], Step],
    brackets: int,
    mode: str,
    stops_last: bool,
    seed: int,
    failures: int,
) -> None:
    scheduler = ASHAScheduler(
        max_t=7, reduction_factor=1.5, brackets=brackets, stop_last_trials=stops_last
    )
    failure, stop = FailureConfig(max_failures=failures), {"loss": 2.5}
    seen = play(scheduler, life, seed, mode=mode, failure=failure, stop=stop)
    again = restored(seen)
    assert again.recall(scheduler, seen.spec)
    assert state(again) == state(seen)


@pytest.fixture
def run() -> Rehearsal:
    """Two trials have reached the first rung."""
    run = Rehearsal(policy=SCHEDULER, metric="loss", mode="min", scheduler="ASHAScheduler")
    for trial_id, loss in (("t0", 1.0), ("t1", 0.5)):
        run.suggest()
        run.start(trial_id)
        run.report(trial_id, {"loss": loss})
    run.handle(SearchEnded())
    return run


def recalls(plain: dict[str, Any], scheduler: ASHAScheduler = SCHEDULER) -> bool:
    machine = from_snapshot(plain)
    return machine.recall(scheduler, machine.spec)


def test_the_next_reports_get_the_same_answers(run: Rehearsal) -> None:
    again = restored(run.machine)
    assert again.recall(SCHEDULER, run.machine.spec)
    run.ends("t1")
    for event, now, _ in run.events[-2:]:
        again.handle(event, now=now)
    for loss in (0.9, 0.7, 0.1):
        answers = run.report("t0", {"loss": loss})
        event, now, _ = run.events[-1]
        assert again.handle(event, now=now) == answers
    assert state(again) == state(run.machine)


def test_a_journal_that_begins_with_a_state_recalls_it_too(run: Rehearsal) -> None:
    machine = Machine(SCHEDULER)
    machine.replay(recalled(run.machine), now=run.now)
    assert state(machine) == state(run.machine)


def test_a_trial_that_began_again_has_forgotten_its_rungs(run: Rehearsal) -> None:
    assert recalls(snapshot(run.machine))
    run.fails("t0")
    run.exits("t0")
    run.ends("t1")
    run.resume(errored="resume")
    assert recalls(snapshot(run.machine))
    run.fails("t0")
    run.exits("t0")
    run.resume(errored="restart")
    assert not recalls(snapshot(run.machine))


def test_rungs_that_are_missing_or_those_of_other_settings_do_not_do(run: Rehearsal) -> None:
    plain = snapshot(run.machine)
    older = {name: value for name, value in plain.items() if name != "has_all_rungs"}
    assert not recalls(older)
    first, second = plain["trials"]
    assert not recalls({**plain, "trials": [first, {**second, "rungs": []}]})
    assert not recalls(plain, ASHAScheduler(max_t=8, grace_period=2))
    beyond = [{**second["rungs"][0], "bracket": 1}]
    assert not recalls({**plain, "trials": [first, {**second, "rungs": beyond}]})


def test_a_subclass_sees_every_event_because_it_may_keep_anything(run: Rehearsal) -> None:
    assert not recalls(snapshot(run.machine), Mine(max_t=8))
