"""Callbacks, searchers and similar code that fork: no child acts for the script's process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig import checker

pytestmark = pytest.mark.process
SCRIPT = Path(__file__).parent / "forking_script.py"
STATUS = {"returns": 0, "raises": 1, "exits": 3}
PLACES = {
    *("callback setup", "callback", "callback state", "callback end"),
    *("tracker setup", "tracker", "tracker flush", "tracker end"),
    *("reporter setup", "reporter", "reporter end"),
    *("searcher setup", "searcher", "searcher end"),
    *("stopper", "scheduler", "name", "pickle", "signal handler"),
}


@pytest.mark.parametrize("way", sorted(STATUS))
def test_a_forked_child_does_not_act_for_the_script(way: str, tmp_path: Path) -> None:
    children = tmp_path / "children"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        env={**os.environ, "WAY": way, "CHILDREN": str(children)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ENDED") == 1
    assert done.stdout.count("ENDED with [[1, 2, 3, 4], [1, 2, 3, 4]]") == 1
    told = [line.rpartition(" ") for line in children.read_text().splitlines()]
    ends = {place: status for place, _, status in told if place != "tracker row"}
    assert ends == dict.fromkeys(PLACES, str(STATUS[way]))
    assert sum(place == "tracker row" for place, _, _ in told) == 8
    assert checker.check(tmp_path / "run") == []


FORKS_WHEN_IMPORTED = """
import os, sys

if "holdfast.runtime.warm.parent" in sys.modules:
    child = os.fork()
    if child:
        STATUS = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def train(config):
    from holdfast import tune
    tune.report({"status": STATUS})
"""

IMPORTS = """
from holdfast import tune
import its_module

if __name__ == "__main__":
    results = tune.Tuner(its_module.train, run_config=tune.RunConfig(verbose=0)).fit()
    print("ENDED with", results[0].metrics["status"], flush=True)
"""


def test_a_child_that_a_module_forks_when_it_is_imported_forks_no_workers(
    run_script: Any, tmp_path: Path
) -> None:
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "its_module.py").write_text(FORKS_WHEN_IMPORTED)
    done = run_script(IMPORTS)
    assert done.stdout == "ENDED with 0\n", done.stderr
