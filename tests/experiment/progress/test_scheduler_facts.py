"""What schedulers decided, from the records: rungs, takeovers, and the messages about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.experiment.control.controller import SchedulerNews
from holdfast.experiment.progress.scheduler_facts import (
    RungCount,
    TakeoverFact,
    Tally,
    rung_counts,
    takeover_facts,
)
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts
from holdfast.experiment.progress.wording import closing_lines
from holdfast.results.reading import load_experiment
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policies.pasha import PASHAScheduler
from holdfast.scheduler.policy import CloneTrial
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.trial import evolve
from tests.rig.runs.deciding import asha, hyperband, population, recorded


def counted(machine: Machine) -> list[tuple[int, float, int, int, int, int]]:
    """Bracket, milestone, reached, promoted, stopped, waiting."""
    return [
        (one.bracket, one.milestone, one.reached, one.promoted, one.stopped, one.waiting)
        for one in rung_counts(machine.trials.values())
    ]


def line(machine: Machine) -> str:
    return Tally().and_of(machine.trials.values()).line(machine.spec)


@pytest.mark.parametrize("snapshot", [False, True], ids=["journal", "snapshot"])
def test_the_rungs_of_asha_are_read_without_its_code(tmp_path: Path, snapshot: bool) -> None:
    asha(tmp_path / "run").ends(snapshot=snapshot)
    machine = load_experiment(tmp_path / "run").machine
    assert machine.policy is None
    assert counted(machine) == [(0, 1, 4, 2, 2, 0), (0, 2, 2, 2, 0, 0), (0, 4, 2, 0, 0, 0)]
    assert line(machine) == "ASHA rungs, promoted of reached: 1: 2/4, 2: 2/2, 4: 2"
    first = rung_counts(machine.trials.values())[0]
    assert first == RungCount(
        bracket=0, milestone=1, reached=4, promoted=2, stopped=2, waiting=0, cutoff=0.5
    )


def test_the_brackets_of_hyperband_are_told_apart(tmp_path: Path) -> None:
    run = hyperband(tmp_path / "run")
    assert counted(run.machine) == [(0, 1, 2, 1, 1, 0), (0, 2, 1, 0, 0, 0), (1, 2, 1, 0, 0, 0)]
    assert run.told == [
        "HyperBand: 1 of the 2 trials at rung 1 of bracket 0 continue; the cutoff is loss=0.25"
    ]


def test_trials_of_pasha_wait_at_a_rung_and_are_stopped_there_in_the_end(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", PASHAScheduler(max_t=4, reduction_factor=2), (0.5, 0.25))
    assert counted(run.machine) == [(0, 1, 2, 1, 1, 0), (0, 2, 1, 0, 0, 0)]
    visits = [(one.milestone, one.promoted) for one in run.trial("d2a66_00001").rungs]
    assert visits == [(1, True), (2, None)]
    assert [one.promoted for one in run.trial("d2a66_00000").rungs] == [False]


def test_a_trial_that_waits_at_a_rung_is_counted_there(tmp_path: Path) -> None:
    run = Rehearsal(policy=PASHAScheduler(), scheduler="PASHAScheduler", metric="loss", mode="min")
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 0.5}, checkpoint=True)
    assert counted(run.machine) == [(0, 1, 1, 0, 0, 1)]


def test_a_takeover_has_both_trials_and_the_values_that_changed(tmp_path: Path) -> None:
    run = population(tmp_path / "run")
    (fact,) = takeover_facts(run.machine.trials.values())
    now = run.trial("d2a66_00001").config["lr"]
    assert fact == TakeoverFact(
        trial_id="d2a66_00001",
        source="d2a66_00000",
        iteration=2,
        source_iteration=2,
        changes={"lr": (0.75, now)},
        at=fact.at,
    )
    assert now in (0.125, 0.5)
    assert run.told == [
        "PBT: at iteration 2, 00001 (loss=0.375) continues from 00000 (loss=0.125) at iteration "
        f"2: lr 0.75 → {now}"
    ]
    last = "PBT: 1 takeover, the last at iteration 2: 00001 from 00000"
    assert line(run.machine) == last
    summary = Summarizer(run.machine).summarize(
        facts=RunFacts(name="run", path="/run", local_path="/run"), now=run.now
    )
    assert last in closing_lines(summary)


def test_of_many_takeovers_the_first_are_told_and_then_fewer_and_fewer(tmp_path: Path) -> None:
    machine = population(tmp_path / "run").machine
    clone = machine.trials["d2a66_00001"]
    machine.moved = {clone.trial_id: evolve(clone, takeovers=())}
    machine.answers = [[CloneTrial(trial_id=clone.trial_id, source="d2a66_00000", config={})]]
    news = SchedulerNews()
    told = [number for number in range(1, 101) if news.after(machine)]
    assert told == [1, 2, 3, 10, 100]
    machine.answers = [[]]
    assert news.after(machine) == []
