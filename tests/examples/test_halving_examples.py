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
