"""The example of holdfast.data, run as a user runs it: killed and resumed within an epoch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rig.bench import Bench

pytestmark = pytest.mark.process

DRIVER = Path(__file__).parents[1] / "driver.py"
EXAMPLE = Path(__file__).parents[3] / "examples" / "data" / "resume.py"
# PyTorch takes half a minute to import on a busy machine.
PATIENCE_S = 180.0


def test_no_row_of_an_epoch_is_seen_twice_after_deaths_of_a_rank_and_of_the_script(
    bench: Bench,
) -> None:
    """The script is killed in the middle of the first epoch, and a rank of three in the second."""
    bench.environ["HOLDFAST_TEST_DIES"] = "2 7 1"
    arguments = (str(EXAMPLE), "--storage", str(bench.storage), "--name", "run", "--epochs", "2")
    gate = bench.gate("report-3")
    script = bench.run(DRIVER, *arguments)
    assert script.wait_for("at 3", PATIENCE_S) == "at 3 1"
    script.dies()
    gate.open()
    after = bench.run(DRIVER, *arguments, "--workers", "3").succeeds(PATIENCE_S)
    assert "Resuming run" in after.stdout
    assert after.wait_for("at 7") == "at 7 2"
    assert after.wait_for("at 7") == "at 7 3"
    assert after.left() == []
    assert bench.problems(tensorboard=True) == []

    (path,) = bench.root.glob("*/result.json")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    ends = [row for row in rows if "most_often" in row]
    assert [(row["epoch"], row["rows_seen"], row["most_often"]) for row in ends] == [
        (0, 480, 1),
        (1, 480, 1),
    ]
    # Two workers before the kill, three after it; each step is of 20 rows for each of them.
    assert [row["rows_seen"] for row in rows if row["epoch"] == 0] == [120, 240, 420, 480]
