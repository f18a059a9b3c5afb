"""The examples of populations: trials that take over from each other, and one of them again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.bench import Bench, workbench
from holdfast.tune import ExperimentAnalysis

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, Path(__file__).parent / "search_driver.py") as made:
        yield made


def ran(bench: Bench, example: str, name: str, *arguments: str) -> Path:
    """Where the example has put its experiment, whose trials have all come to their end."""
    place = ("--storage", str(bench.storage), "--name", name, "--samples", "2")
    bench.run(bench.script, str(EXAMPLES / example), *arguments, *place).succeeds()
    root = bench.storage / name
    for trial in ExperimentAnalysis(root).trials:
        assert trial.last_result["training_iteration"] == 12
    return root


def test_a_population_and_one_of_its_trials_again(bench: Bench) -> None:
    population = ran(bench, "pbt.py", "pbt")
    assert len((population / "pbt_global.txt").read_text().splitlines()) >= 3
    (again,) = ExperimentAnalysis(ran(bench, "pbt_replay.py", "again", str(population))).trials
    newest = max(population.glob("pbt_policy_*.txt"), key=lambda path: path.stat().st_mtime)
    trials = ExperimentAnalysis(population).trials
    (replayed,) = [trial for trial in trials if trial.trial_id in newest.name]
    assert again.config == replayed.config
    # Where the last takeover was after the last epoch, what was taken over is the other one's.
    losses = [pytest.approx(trial.last_result["loss"]) for trial in trials]
    assert again.last_result["loss"] in losses


def test_a_population_of_a_bandit(bench: Bench) -> None:
    root = ran(bench, "pb2.py", "pb2")
    assert (root / "pbt_global.txt").exists()
