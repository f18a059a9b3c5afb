"""An experiment is extended and killed, and resumes as extended."""

from __future__ import annotations

import json

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench, results
from tests.rig.script import UserScript

pytestmark = pytest.mark.process

SCRIPT = """
import json, sys, tempfile
from pathlib import Path
from holdfast import tune
from tests.rig.script import mark, wait_at
from holdfast.tune.stopper import MaximumIterationStopper

class Model:
    def __init__(self, name):
        self.name = name

def train(config):
    start = 1
    if found := tune.get_checkpoint():
        with found.as_directory() as folder:
            start = int(Path(folder, "epoch").read_text()) + 1
    for epoch in range(start, 100):
        wait_at(f"{config['x']}-{epoch}")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            tune.report({"epoch": epoch, "model": config["model"].name},
                        checkpoint=tune.Checkpoint.from_directory(folder))
        mark("reported", config["x"], epoch)

if __name__ == "__main__":
    storage, what = sys.argv[1:]
    space = lambda x, name: {"x": tune.grid_search(x), "model": Model(name)}
    run_config = tune.RunConfig(storage_path=storage, name="run", verbose=0, stop={"epoch": 2})
    if what == "begin":
        tuner = tune.Tuner(train, param_space=space([1, 2], "old"), run_config=run_config)
    elif what == "extend":
        tuner = tune.Tuner.restore(
            run_config, train, param_space=space([1, 2, 3], "new"), extend=True,
            stop=MaximumIterationStopper(4), resume_config=tune.ResumeConfig("resume"))
    else:
        tuner = tune.Tuner.restore(storage + "/run")
    found = [[r.config["x"], r.metrics["model"], r.metrics["epoch"]] for r in tuner.fit()]
    print("RESULTS", json.dumps(found))
"""


def test_a_killed_extension_resumes_without_being_asked_for_again(bench: Bench) -> None:
    path = bench.write(SCRIPT)

    def start(what: str) -> UserScript:
        return bench.run(path, str(bench.storage), what)

    start("begin").succeeds()
    gates = [bench.gate("2-4"), bench.gate("3-3")]
    script = start("extend")
    for reported in ("1 3", "2 3", "3 2"):
        script.wait_for(f"reported {reported}")
    script.dies()
    for gate in gates:
        gate.open()
    found: object = results(start("restore").succeeds())
    assert found == [[1, "old", 4], [2, "old", 4], [3, "new", 4]]
    assert bench.problems(tensorboard=True) == []
    assert main(["doctor", str(bench.root)]) == 0
    epochs = [
        [json.loads(line)["epoch"] for line in (folder / "result.json").read_text().splitlines()]
        for folder in sorted(bench.root.glob("train_*"))
    ]
    assert epochs == [[1, 2, 3, 4]] * 3
