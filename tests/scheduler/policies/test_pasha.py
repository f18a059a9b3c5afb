"""PASHA against its definition, recomputed for each report from all earlier ones."""

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.events import SearchEnded, SearchWaits
from holdfast.scheduler.policies.pasha import Noise, PASHAScheduler, percentile
from holdfast.scheduler.policy import (
    NoMoreTrials,
    NoteRung,
    Stalled,
    StopTrial,
    TrialAdded,
    UnpauseTrial,
)
from holdfast.testing.rehearsal import Lockstep, Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status

GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}


class Definition:
    """The paper's rule, with all reports at hand. Trials are numbers; one that waits is not in
    `going`."""

    def __init__(self, rungs: list[int], factor: int, percent: float) -> None:
        self.rungs, self.factor, self.percent = rungs, factor, percent
        self.top = min(1, len(rungs) - 1)
        self.epsilon = 0.0
        self.curves: dict[int, list[float]] = {}
        self.order: list[tuple[int, int]] = []  # (rung, trial) as they came
        self.promoted: set[tuple[int, int]] = set()
        self.ended: set[int] = set()

    def at(self, rung: int) -> list[int]:
        """The trials that have reached a rung, best first."""
        came = [trial for known, trial in self.order if known == rung]
        return sorted(came, key=lambda trial: self.curves[trial][self.rungs[rung] - 1])

    def report(self, trial: int, loss: float) -> None:
        curve = self.curves.setdefault(trial, [])
        curve.append(loss)
        self.estimate()
        if len(curve) not in self.rungs:
            return
        rung = self.rungs.index(len(curve))
        self.order.append((rung, trial))
        if rung == self.top and 0 < rung < len(self.rungs) - 1 and not self.agrees():
            self.top += 1
        if rung == len(self.rungs) - 1:
            self.ended.add(trial)
        for lower in range(self.top):
            ranked = self.at(lower)
            for one in ranked[: len(ranked) // self.factor]:
                if math.isfinite(self.curves[one][self.rungs[lower] - 1]):
                    self.promoted.add((lower, one))

    def estimate(self) -> None:
        """From all pairs of curves that go beyond the second highest rung."""
        distances = []
        for one, other in combinations(self.curves.values(), 2):
            both = list(zip(one, other, strict=False))
            if self.top == 0 or len(both) <= self.rungs[self.top - 1]:
                continue
            signs = [a > b for a, b in both if a != b]
            swaps = "".join("1" if sign else "0" for sign in signs)
            last = signs[-1:] == [True]
            back = swaps.rstrip("1" if last else "0").rstrip("0" if last else "1")
            if signs and back:
                distances.append(abs(both[-1][0] - both[-1][1]))
        if distances:
            self.epsilon = percentile(sorted(distances), self.percent / 100)

    def agrees(self) -> bool:
        now = self.at(self.top)
        before = [trial for trial in self.at(self.top - 1) if trial in now]
        below = self.rungs[self.top - 1] - 1
        return all(
            abs(self.curves[a][below] - self.curves[b][below]) <= self.epsilon
            for a, b in zip(now, before, strict=True)
        )

    def waits(self, trial: int) -> bool:
        at = len(self.curves.get(trial, []))
        if trial in self.ended or at not in self.rungs:
            return False
        return (self.rungs.index(at), trial) not in self.promoted


@settings(max_examples=50, deadline=None)
@given(
    st.integers(2, 3),
    st.integers(1, 20),
    st.sampled_from([50.0, 90.0]),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), min_size=1, max_size=120),
)
def test_every_pause_and_promotion_is_the_one_of_the_definition(
    factor: int, most: int, percent: float, reports: list[tuple[int, int]]
) -> None:
    scheduler = PASHAScheduler(reduction_factor=factor, max_t=most, noise_percentile=percent)
    run = Rehearsal(capacity={"CPU": 7.0}, policy=scheduler, scheduler="PASHAScheduler", **GOAL)
    rungs = [rung for rung in (1, factor, factor**2, factor**3, factor**4) if rung < most]
    definition = Definition([*rungs, most], factor, percent)
    for index in range(7):
        run.suggest()
        run.start(f"t{index}")
    for trial, loss in reports:
        trial_id = f"t{trial}"
        if run.trial(trial_id).status is not Status.RUNNING:
            continue
        definition.report(trial, loss)
        run.report(trial_id, {"loss": loss}, checkpoint=True)
        for index in range(7):
            status = run.trial(f"t{index}").status
            if status is Status.STOPPING or (status is Status.PAUSED and f"t{index}" == trial_id):
                run.ends(f"t{index}")
            if run.trial(f"t{index}").status is Status.STARTING:
                run.start(f"t{index}")
        for index in range(7):
            is_waiting = run.trial(f"t{index}").status is Status.PAUSED
            assert is_waiting == definition.waits(index), (index, definition.order)
            assert run.trial(f"t{index}").status.is_final == (index in definition.ended)


def curves(
    *losses: list[float],
) -> Callable[[int, int], Mapping[str, float] | None]:
    return lambda index, at: {"loss": losses[index][at - 1]} if at <= len(losses[index]) else None


def test_the_next_rung_opens_when_the_ranking_changes_and_noise_opens_none() -> None:
    steady = [[float(index)] * 27 for index in range(3, 27)]
    crossing_over = [[0.0, 0.0, 5.0, *[5.0] * 24], [1.0, 1.0, 1.0, *[1.0] * 24], [2.0] * 27]
    alike = [[0.0, 0.3, 0.1, *[0.1] * 24], [0.1, 0.2, 0.2, *[0.0] * 24], [2.0] * 27]
    opened = Lockstep(PASHAScheduler(max_t=27), curves(*crossing_over, *steady), trials=27, **GOAL)
    assert max(at for _, at in opened.to_the_end().ends) > 3
    quiet = Lockstep(PASHAScheduler(max_t=27), curves(*alike, *steady), trials=27, **GOAL)
    assert max(at for _, at in quiet.to_the_end().ends) == 3


@pytest.mark.parametrize(
    ("values", "epsilon"),
    [
        ([2.0, 0.0, 1.5], 0.5),
        ([2.0, 0.0, 1.5, 1.25], 0.25),
        ([2.0, 2.0, 0.0], 0.0),
        ([2.0, 0.0, math.inf], 0.0),
    ],
    ids=["there and back", "the newest counts", "crossed once", "diverged"],
)
def test_two_curves_are_apart_by_noise_where_they_have_crossed_there_and_back(
    values: list[float], epsilon: float
) -> None:
    noise = Noise(90)
    for trial_id, curve in (("flat", [1.0] * len(values)), ("other", values)):
        for time, value in enumerate(curve, 1):
            noise.extend(trial_id, time, value, since=1)
    assert noise.epsilon == epsilon


def test_a_search_that_waits_for_those_that_wait_sees_the_best_of_them_continue() -> None:
    run = Rehearsal(
        capacity={"CPU": 2.0}, policy=PASHAScheduler(), scheduler="PASHAScheduler", **GOAL
    )
    for index in range(2):
        run.suggest()
        run.start(f"t{index}")
    for index in range(2):
        run.report(f"t{index}", {"loss": 2.0 - index}, checkpoint=True)
        run.ends(f"t{index}")
    run.handle(SearchWaits())
    assert run.trial("t1").status is Status.STARTING
    assert run.trial("t0").status is Status.PAUSED


def test_after_an_extension_those_that_wait_are_wanted_again() -> None:
    run = Rehearsal(policy=PASHAScheduler(), scheduler="PASHAScheduler", **GOAL)
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    policy = run.machine.policy
    assert policy is not None
    policy.decide(run.machine, NoMoreTrials())
    note, stopped = policy.decide(run.machine, Stalled())
    assert (type(note), type(stopped)) == (NoteRung, StopTrial)
    policy.decide(run.machine, TrialAdded(trial_id="t1"))
    assert policy.decide(run.machine, Stalled())[-1] == UnpauseTrial(trial_id="t0")


def test_one_that_could_not_save_itself_waits_where_it_did() -> None:
    run = Rehearsal(
        capacity={"CPU": 1.0},
        policy=PASHAScheduler(),
        scheduler="PASHAScheduler",
        saves_when_told=True,
        failure=FailureConfig(max_failures=1),
        **GOAL,
    )
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 1.0})
    run.fails("t0", kind="lost")
    run.exits("t0")
    run.start("t0")
    run.report("t0", {"loss": 1.0})
    assert run.trial("t0").status is Status.PAUSED


def test_one_that_has_diverged_goes_nowhere() -> None:
    losses = [[math.nan] * 9] * 9
    study = Lockstep(PASHAScheduler(max_t=9), curves(*losses), trials=9, **GOAL).to_the_end()
    assert study.ends == [("TERMINATED", 1)] * 9


def test_a_trial_that_saves_nothing_ends_the_run_at_its_first_pause() -> None:
    run = Rehearsal(policy=PASHAScheduler(), scheduler="PASHAScheduler", **GOAL)
    run.suggest()
    run.start("t0")
    run.handle(SearchEnded())
    run.report("t0", {"loss": 1.0})
    assert run.machine.ending is not None
    assert "PASHAScheduler resumes trials from checkpoints" in run.machine.ending.message
    assert PASHAScheduler.needs_checkpoints
