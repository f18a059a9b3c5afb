"""The examples of populations, killed and resumed: trials that clone each other, and a replay of
one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.tune import ExperimentAnalysis
from tests.examples.killing import iterations, killed_and_gone_on
from tests.rig.bench import Bench

pytestmark = pytest.mark.process


def ran(bench: Bench, example: str, name: str, *arguments: str, at: str) -> Path:
    """The example's experiment, whose trials have all ended."""
    killed_and_gone_on(bench, f"search/{example}", *arguments, "--samples", "2", at=at, name=name)
    assert set(iterations(bench, name)) == {12}
    return bench.storage / name


def test_a_population_and_one_of_its_trials_again(bench: Bench) -> None:
    population = ran(bench, "pbt", "pbt", at="1 5")
    assert len((population / "pbt_global.txt").read_text().splitlines()) >= 3
    (again,) = ExperimentAnalysis(
        ran(bench, "pbt_replay", "again", str(population), at="0 5")
    ).trials
    newest = max(population.glob("pbt_policy_*.txt"), key=lambda path: path.stat().st_mtime)
    trials = ExperimentAnalysis(population).trials
    (replayed,) = [trial for trial in trials if trial.trial_id in newest.name]
    assert again.config == replayed.config
    # If the last clone was made after the last epoch, its checkpoint is the other trial's.
    losses = [pytest.approx(trial.last_result["loss"]) for trial in trials]
    assert again.last_result["loss"] in losses


@pytest.mark.nightly
def test_a_population_of_a_bandit(bench: Bench) -> None:
    root = ran(bench, "pb2", "pb2", at="1 8")
    assert (root / "pbt_global.txt").exists()
