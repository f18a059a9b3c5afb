"""A run with a scheduler that has the methods that Ray calls, killed and restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.bench import Bench, results, workbench

pytestmark = pytest.mark.process


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, Path(__file__).parent / "ray_style_script.py") as made:
        yield made


def test_a_killed_run_decides_as_one_that_was_not_killed(bench: Bench) -> None:
    whole = results(bench.start(storage=str(bench.folder / "whole")).succeeds())
    expected = bench.notes()[-1]
    assert {found["epoch"] for found in whole} == {2, 3}  # it stops some
    in_epoch = bench.gate("at-5-2")
    script = bench.start()
    script.wait_for("at 5 2")  # all have paused once
    script.kill()
    in_epoch.open()
    assert results(bench.restore().succeeds()) == whole
    told = bench.notes()[-1]
    assert told["losses"] == expected["losses"]
    # A trial that was killed is shown as waiting until it runs again.
    assert [call.split("[")[0] for call in told["calls"]] == [
        call.split("[")[0] for call in expected["calls"]
    ]
    assert bench.problems() == []
