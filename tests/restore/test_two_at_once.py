"""Two processes that want the same experiment: one gets it, the other learns who has it."""

from __future__ import annotations

import json
import os

import pytest

from tests.rig.bench import Bench, epochs_of

pytestmark = pytest.mark.process


def test_a_second_fit_of_the_same_name_is_refused_and_the_first_continues(bench: Bench) -> None:
    gate = bench.gate("any-2")
    first = bench.start()
    first.wait_for("at 0 2")
    second = bench.start()
    assert second.ends() == 1
    second.finish_reading()
    assert "ExperimentInUse" in second.stderr
    assert f"process {first.process.pid} on {os.uname().nodename}" in second.stderr
    gate.open()
    first.succeeds()
    assert epochs_of(first) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_of_two_restores_at_once_one_is_refused(bench: Bench) -> None:
    script, gate = bench.held_in(2)
    script.kill()
    first = bench.restore()
    first.wait_for("begun 0 2")
    second = bench.restore()
    assert second.ends() == 1
    second.finish_reading()
    assert "ExperimentInUse" in second.stderr
    gate.open()
    first.succeeds()
    assert epochs_of(first) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_the_lock_file_of_a_dead_process_is_no_obstacle(bench: Bench) -> None:
    bench.root.mkdir(parents=True)
    # The pid of a live process that did not take the lock: the lock decides, not the pid.
    holder = {"pid": os.getpid(), "host": os.uname().nodename}
    (bench.root / ".lock").write_text(json.dumps(holder))
    assert epochs_of(bench.start().succeeds()) == [4, 4]


def test_a_restore_waits_for_the_last_process_of_the_incarnation_before(bench: Bench) -> None:
    """A worker that cannot die (stopped in the kernel or, as here, made to outlive its parent)
    still holds the experiment."""
    path = bench.write(
        """
import fcntl, os, sys
from tests.rig.script import mark, wait_at
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
mark("holds")
wait_at("straggler")
""",
        "straggler.py",
    )
    bench.start(epochs=2).succeeds()
    (bench.root / ".lock").write_text(json.dumps({"pid": 2**22 - 1, "host": os.uname().nodename}))
    gate = bench.gate("straggler")
    straggler = bench.run(path, str(bench.root / ".lock"))
    straggler.wait_for("holds")
    restored = bench.restore(epochs=2)
    restored.wait_for("made")
    gate.open()
    restored.succeeds()
    assert epochs_of(restored) == [2, 2]


def test_two_fits_in_two_threads_of_one_process_are_isolated_or_refused(bench: Bench) -> None:
    path = bench.write(
        """
import sys, threading
from holdfast import tune
from tests.rig.script import mark, wait_at

def train(config):
    mark("at", config["name"])
    wait_at("go")
    tune.report({"name": config["name"]})

def fit(name, key):
    try:
        results = tune.Tuner(train, param_space={"name": key}, run_config=tune.RunConfig(
            storage_path=sys.argv[1], name=name, verbose=0)).fit()
        print("DONE", key, results[0].metrics["name"])
    except Exception as error:
        print("REFUSED", key, type(error).__name__)
        mark("refused")

if __name__ == "__main__":
    threads = [threading.Thread(target=fit, args=(name, key))
               for name, key in (("one", "a"), ("two", "b"))]
    for thread in threads:
        thread.start()
    mark("both run")
    wait_at("third")
    fit("one", "c")
    for thread in threads:
        thread.join()
"""
    )
    go, third = bench.gate("go"), bench.gate("third")
    script = bench.run(path, str(bench.storage))
    script.wait_for("at a")
    script.wait_for("at b")
    third.open()
    script.wait_for("refused")
    go.open()
    script.succeeds()
    assert "REFUSED c ExperimentInUse" in script.stdout
    assert "DONE a a" in script.stdout
    assert "DONE b b" in script.stdout
