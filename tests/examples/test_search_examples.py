"""The examples of search that need no library: run, killed, and gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.bench import Bench, workbench
from holdfast.tune import ExperimentAnalysis

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, Path(__file__).parent / "search_driver.py") as made:
        yield made


def configs(bench: Bench) -> list[dict[str, Any]]:
    return [trial.config for trial in ExperimentAnalysis(bench.root).trials]


def test_random_search_begins_with_its_points_and_runs_the_grid(bench: Bench) -> None:
    place = ("--storage", str(bench.storage), "--name", "run", "--samples", "2")
    script = bench.run(bench.script, str(EXAMPLES / "random_search.py"), *place).succeeds()
    first, second, *rest = configs(bench)
    assert first == {"lr": 0.1, "momentum": 0.9, "features": 4}
    assert second == {"lr": 0.1, "momentum": 0.9, "features": 16}
    assert [config["features"] for config in rest] == [4, 16]
    assert rest[0]["lr"] == rest[1]["lr"]
    assert "4 trials, the best loss is" in script.stdout


def test_a_searcher_of_ones_own_goes_on_after_a_kill(bench: Bench) -> None:
    place = ("--storage", str(bench.storage), "--name", "run", "--samples", "5")
    gates = [bench.gate("at-2-3"), bench.gate("at-1-3")]
    script = bench.run(bench.script, str(EXAMPLES / "own_searcher.py"), *place)
    script.wait_for("at 1 3")
    script.wait_for("at 2 3")  # two at a time: the first has ended
    script.kill()
    assert script.left() == []
    before = configs(bench)
    for gate in gates:
        gate.open()
    after = bench.run(bench.script, str(EXAMPLES / "own_searcher.py"), *place).succeeds()
    assert "5 trials, the best loss is" in after.stdout
    assert configs(bench)[:3] == before
    assert bench.problems() == []
