"""ASHA against its definition, recomputed for each report from all earlier ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.effects import Reply, Verdict, Warn
from holdfast.scheduler.events import SearchEnded
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status
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
    rungs: list[Any] = [rung for bracket in policy._brackets for rung in bracket.rungs]
    return [
        (r.milestone, r._judged, sorted(r._quantile._below), sorted(r._quantile._above))
        for r in rungs
    ]


def play(
    scheduler: ASHAScheduler, life: Mapping[tuple[int, int], Step], seed: int, **spec: Any
) -> Machine:
    played = Play(
        scheduler,
        lambda index, at: life.get((index, at), "returns"),
        trials=6,
        capacity={"CPU": 2.0},
        seed=seed,
        saves_every=3,
        crashes=[15, 40],
        metric="loss",
        **spec,
    )
    return played.to_the_end().run.machine


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


def running(count: int, scheduler: ASHAScheduler, **spec: Any) -> Rehearsal:
    run = Rehearsal(
        capacity={"CPU": float(count)},
        policy=scheduler,
        **{"metric": "loss", "mode": "min", "scheduler": "ASHAScheduler", **spec},
    )
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    return run


def stops(run: Rehearsal, trial_id: str, **metrics: float) -> bool:
    (reply,) = [e for e in run.report(trial_id, metrics) if isinstance(e, Reply)]
    return reply.verdict is Verdict.STOP


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between two values, as is usual (Hyndman and Fan's type 7)."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low, high = ranked[math.floor(place)], ranked[math.ceil(place)]
    if low == high:
        return low
    return low + (high - low) * (place - math.floor(place))


class Definition:
    """The paper's rule for one bracket, with all reports at hand."""

    def __init__(self, grace: int, factor: int, most: int) -> None:
        self.factor, self.most = factor, most
        self.rungs = []
        while grace <= most:
            self.rungs.append(grace)
            grace *= factor
        self.history: list[tuple[int, int, float]] = []  # trial, rung, loss

    def stops(self, trial: int, time: int, loss: float) -> bool:
        rung = max((rung for rung in self.rungs if rung <= time), default=None)
        judged = [(known, at) for known, at, _ in self.history]
        if rung is None or (trial, rung) in judged:
            return time >= self.most
        before = [value for _, at, value in self.history if at == rung]
        self.history.append((trial, rung, loss))
        is_worse = bool(before) and loss > percentile(before, 1 / self.factor)
        return is_worse or time >= self.most


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(2, 4),
    st.integers(3, 30),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=120),
)
def test_every_stop_is_the_one_of_the_definition(
    grace: int, factor: int, most: int, reports: list[tuple[int, int]]
) -> None:
    run = running(6, ASHAScheduler(grace_period=grace, reduction_factor=factor, max_t=most))
    definition = Definition(grace, factor, most)
    times = dict.fromkeys(range(6), 0)
    stopped: set[int] = set()
    for trial, drawn in reports:
        if trial in stopped:
            continue
        # Roots: none is exactly at the quantile of two others, where rounding would decide.
        loss = math.sqrt(drawn + 2)
        times[trial] += 1
        expected = definition.stops(trial, times[trial], loss)
        assert stops(run, f"t{trial}", loss=loss) == expected, (trial, times[trial], loss)
        if expected:
            stopped.add(trial)


def test_a_trial_belongs_to_the_same_bracket_after_a_restore_and_to_each_some_do() -> None:
    scheduler = ASHAScheduler(max_t=81, reduction_factor=3, brackets=3)
    runs = [running(40, scheduler, seed=seed) for seed in (1, 1, 2)]
    found = []
    for run in runs:
        policy = run.machine.policy
        assert isinstance(policy, ASHAScheduler)
        found.append([policy._bracket(f"t{i}") for i in range(40)])
    assert found[0] == found[1] != found[2]
    assert found[0].count(0) > found[0].count(1) > found[0].count(2) > 0


def test_brackets_that_max_t_has_no_room_for_stop_no_trial_early_which_is_said_once() -> None:
    scheduler = ASHAScheduler(max_t=4, reduction_factor=4, brackets=4)
    run = Rehearsal(
        capacity={"CPU": 40.0}, policy=scheduler, metric="loss", mode="min", scheduler="ASHA"
    )
    texts, free = [], []
    for index in range(40):
        effects = run.suggest()
        texts += [effect.text for effect in effects if isinstance(effect, Warn)]
        run.start(f"t{index}")
        policy = run.machine.policy
        assert isinstance(policy, ASHAScheduler)
        if policy._bracket(f"t{index}") >= 2:
            free.append(f"t{index}")
    assert texts == [
        "ASHAScheduler(brackets=4): there is room for 2 up to max_t=4, so the trials of the "
        "others train to max_t"
    ]
    assert free
    for trial_id in free:
        for iteration in range(1, 5):
            run.report(trial_id, {"loss": 1000.0 + int(trial_id[1:])})
            is_over = iteration == 4
            assert (run.trial(trial_id).status is Status.STOPPING) == is_over


@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_the_worst(worst: float) -> None:
    run = running(4, ASHAScheduler(reduction_factor=2))
    assert not stops(run, "t0", loss=1.0)
    assert stops(run, "t1", loss=worst)
    assert not stops(run, "t2", loss=1.0)


def test_one_that_diverged_first_does_not_stop_the_others() -> None:
    run = running(3, ASHAScheduler(reduction_factor=2))
    assert not stops(run, "t0", loss=math.nan)
    assert not stops(run, "t1", loss=5.0)
    assert stops(run, "t2", loss=math.nan)
