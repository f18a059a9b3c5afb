"""The results folder becomes read-only during a run: the run stops, instead of failing every
trial."""

from __future__ import annotations

import re

import pytest

from tests.rig.bench import Bench

pytestmark = pytest.mark.process

SCRIPT = """
import ctypes, os, sys
from holdfast import tune

def train(config):
    tune.report({"x": config["x"]})
    if config["x"] == 0:
        os.chmod("..", 0o555)

if __name__ == "__main__":
    if os.getuid() == 0:  # permissions do not count for root with CAP_DAC_OVERRIDE
        libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
        for capability in (1, 2):  # for programs that start later
            if libc.prctl(24, capability, 0, 0, 0):
                sys.exit("cannot drop a capability")
        if libc.capset(header, (ctypes.c_uint32 * 6)()):  # for this process
            sys.exit("cannot drop a capability")
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"x": tune.grid_search([0, 1, 2, 3])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="run", storage_path=sys.argv[1]),
    )
    print([result.metrics["x"] for result in tuner.fit(resume="auto")])
"""


def test_a_read_only_results_folder_stops_the_run_and_fails_no_trial(bench: Bench) -> None:
    path = bench.write(SCRIPT, "own.py")
    script = bench.run(path, str(bench.storage))
    code = script.ends()
    script.finish_reading()
    if "cannot drop a capability" in script.stderr:
        pytest.skip("root needs CAP_SETPCAP to give up its power over permissions")
    assert code == 1
    assert "cannot write the trial's folder" in script.stderr
    assert "Permission denied. The run has stopped, and no trial has failed by this" in (
        script.stderr
    )
    assert re.search(r"then resume: .*holdfast resume .*/run\n", script.stderr)
    assert "trial_directory.py" not in script.stderr
    bench.root.chmod(0o755)
    again = bench.run(path, str(bench.storage)).succeeds()
    again.finish_reading()
    assert again.stdout == "[0, 1, 2, 3]\n"
