"""The examples of schedulers that halve: trials get as far as they are worth."""

from __future__ import annotations

from collections import Counter
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


def epochs(bench: Bench, example: str, samples: int) -> list[int]:
    """How far each trial came."""
    place = ("--storage", str(bench.storage), "--name", "run", "--samples", str(samples))
    script = bench.run(bench.script, str(EXAMPLES / example), *place).succeeds()
    assert f"{samples} trials, the best loss is" in script.stdout
    return [
        trial.last_result["training_iteration"] for trial in ExperimentAnalysis(bench.root).trials
    ]


def test_a_bracket_of_hyperband_ends_with_one_trial(bench: Bench) -> None:
    assert Counter(epochs(bench, "hyperband.py", 6)) == {1: 4, 3: 1, 9: 1}


def test_dehb_goes_on_after_a_kill_and_each_trial_gets_its_budget(bench: Bench) -> None:
    place = ("--storage", str(bench.storage), "--name", "run", "--samples", "13")
    gate = bench.gate("at-9-1")
    script = bench.run(bench.script, str(EXAMPLES / "dehb.py"), *place)
    script.wait_for("at 9 1")  # the first at the next budget
    script.kill()
    assert script.left() == []
    before = [trial.config for trial in ExperimentAnalysis(bench.root).trials]
    gate.open()
    bench.run(bench.script, str(EXAMPLES / "dehb.py"), *place).succeeds()
    trials = ExperimentAnalysis(bench.root).trials
    assert [trial.config for trial in trials[: len(before)]] == before
    came = [trial.last_result["training_iteration"] for trial in trials]
    assert came == [trial.config["dehb"]["budget"] for trial in trials]
    assert came.count(1) == 9
    assert bench.problems() == []
