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


POOLS = """
import multiprocessing, os, signal
from holdfast import tune

class Pooling(tune.Callback):
    def on_trial_result(self, *args, **info):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print("SUM", sum(pool.map(abs, [-1, 2, -4, 7])), flush=True)
        waits = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
        waits.start()
        waits.terminate()
        waits.join()
        print("CODE", waits.exitcode, flush=True)

def train(config):
    tune.report({"n": 1})

if __name__ == "__main__":
    tune.Tuner(train, run_config=tune.RunConfig(verbose=0, callbacks=[Pooling()])).fit()
"""


def test_processes_of_a_callback_end_when_they_are_terminated(run_script: Any) -> None:
    """`fit()` catches SIGTERM for the script, and its children would have its handler."""
    done = run_script(POOLS)
    assert done.stdout == "SUM 14\nCODE -15\n", done.stderr


STAYS = """
import os, sys
from holdfast import tune

class Staying(tune.Callback):
    def on_trial_result(self, *args, **info):
        if os.fork() == 0:
            sys.stdin.read()  # as long as the test wants it
            os._exit(0)

def train(config):
    tune.report({"n": 1})

if __name__ == "__main__":
    callbacks = [Staying()] if sys.argv[1:] else []
    config = tune.RunConfig(name="run", verbose=0, callbacks=callbacks)
    results = tune.Tuner(train, run_config=config).fit()
    print("ENDED with", results[0].metrics["n"], flush=True)
"""


def test_a_child_that_outlives_the_run_does_not_keep_the_experiment(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STAYS)

    def begin(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), *arguments]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with begin("forks") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ENDED with 1\n"
        assert first.wait(60) == 0
        with begin() as second:
            told, errors = second.communicate(timeout=60)
        assert told == "ENDED with 1\n", errors
