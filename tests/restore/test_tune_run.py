"""A script in Ray's older style, with `tune.run(..., resume="AUTO")`: killed and started again."""

from __future__ import annotations

import json

import pytest

from tests.rig.bench import Bench

pytestmark = pytest.mark.process

SCRIPT = """
import json
import sys

from holdfast import tune
from tests.rig.script import mark, wait_at


class Counts(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        if self.n == 3:
            mark("at", self.config["x"])
            wait_at("third")
        return {"n": self.n, "x": self.config["x"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]
        mark("loaded", self.config["x"], self.n)


if __name__ == "__main__":
    analysis = tune.run(
        Counts,
        name="run",
        config={"x": tune.grid_search([0, 1])},
        resources_per_trial={"cpu": 0.5},
        stop={"training_iteration": 4},
        checkpoint_freq=1,
        storage_path=sys.argv[1],
        resume=(sys.argv[2:] or [None])[0],
        verbose=1,
    )
    print(json.dumps([list(map(int, rows["n"])) for rows in analysis.trial_dataframes.values()]))
"""


def test_a_killed_script_is_refused_without_resume_and_continues_with_auto(bench: Bench) -> None:
    path = bench.write(SCRIPT)
    gate = bench.gate("third")
    script = bench.run(path, str(bench.storage), "AUTO")
    script.wait_for("at 0")
    script.wait_for("at 1")
    script.dies()
    gate.open()

    refused = bench.run(path, str(bench.storage))
    assert refused.ends() == 1
    refused.finish_reading()
    assert "or resume='auto' in this script" in refused.stderr

    again = bench.run(path, str(bench.storage), "AUTO").succeeds()
    again.wait_for("loaded 0 2")
    again.wait_for("loaded 1 2")
    assert json.loads(again.stdout.splitlines()[-1]) == [[1, 2, 3, 4], [1, 2, 3, 4]]
