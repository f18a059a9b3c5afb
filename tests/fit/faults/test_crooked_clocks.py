"""The controller's clock returns nonsense, or is set back: its records stay readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.rig.nightly import rest_nightly

SCRIPT = """
import itertools, sys, time
from holdfast import tune

def train(config):
    for n in range(3):
        tune.report({"n": n})

count, true, kind = itertools.count(), time.time, sys.argv[1]

def crooked():
    number = next(count)
    if kind == "back":
        return true() - 86400 * number
    return float(kind) if number % 3 else true()

if __name__ == "__main__":
    time.time = crooked
    space = {"x": tune.grid_search([1, 2])}
    config = tune.RunConfig(name="run", storage_path=sys.argv[2], verbose=1)
    results = tune.Tuner(train, param_space=space, run_config=config).fit()
    assert [one.error for one in results] == [None, None]
"""


def train(config: dict[str, Any]) -> None:
    """The arguments of a restore."""


@pytest.mark.parametrize("kind", rest_nightly(3, ["nan", "1e300", "back", "inf", "-5"]))
def test_a_run_with_a_crooked_clock_can_be_read_and_restored(
    run_script: Any, tmp_path: Path, kind: str
) -> None:
    done = run_script(SCRIPT, kind, str(tmp_path))
    assert done.returncode == 0, done.stderr
    tuner = tune.Tuner.restore(str(tmp_path / "run"), train)
    for results in (tuner.get_results(), tuner.fit()):
        assert [one.metrics["n"] for one in results if one.metrics] == [2, 2]
        assert list(results.get_dataframe()["training_iteration"]) == [3, 3]
    assert len(tune.ExperimentAnalysis(str(tmp_path / "run")).trials) == 2
