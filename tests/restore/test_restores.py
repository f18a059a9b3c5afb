"""Restores by `Tuner`, trainers and `tune.run`: what they resume, leave alone, and refuse."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench, epochs_of, results, workbench
from tests.rig.script import UserScript

pytestmark = pytest.mark.process


@pytest.fixture
def ray_bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, Path(__file__).parent / "ray_style_script.py") as made:
        yield made


def test_a_killed_run_decides_as_one_that_was_not_killed(ray_bench: Bench) -> None:
    whole = results(ray_bench.start(storage=str(ray_bench.folder / "whole")).succeeds())
    expected = ray_bench.notes()[-1]
    assert {found["epoch"] for found in whole} == {2, 3}  # it stops some
    in_epoch = ray_bench.gate("at-5-2")
    script = ray_bench.start()
    script.wait_for("at 5 2")  # all have paused once
    script.kill()
    in_epoch.open()
    assert results(ray_bench.restore().succeeds()) == whole
    told = ray_bench.notes()[-1]
    assert told["losses"] == expected["losses"]
    # A trial that was killed is shown as waiting until it runs again.
    assert [call.split("[")[0] for call in told["calls"]] == [
        call.split("[")[0] for call in expected["calls"]
    ]
    assert ray_bench.problems() == []


def test_a_killed_script_leaves_no_rank_and_resumes_where_all_ranks_were(bench: Bench) -> None:
    gate = bench.gate("any-3")
    script = bench.start(ranks=2, num_to_keep=1)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.dies()
    gate.open()
    assert epochs_of(bench.restore(ranks=2).succeeds()) == [4, 4]
    ran = [(note["trial"], note["iteration"]) for note in bench.notes() if note["what"] == "ran"]
    again = sorted(iteration for trial, iteration in ran if ran.count((trial, iteration)) > 1)
    assert again == [3, 3, 3, 3]  # the interrupted epoch of each trial, twice
    assert bench.problems(tensorboard=True) == []


def test_ctrl_c_ends_all_ranks_and_the_tuner_continues(bench: Bench) -> None:
    gate = bench.gate("any-2")
    script = bench.start(ranks=2)
    script.wait_for("at 0 2")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    script.finish_reading()
    assert f"Tuner.restore('{bench.root}').fit()" in script.stderr
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore(ranks=2).succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


EXTENDING = """
import json, sys
from holdfast import tune
from tests.rig.epochs import resumed, saved
from tests.rig.script import mark, wait_at
from holdfast.tune.stopper import MaximumIterationStopper

class Model:
    def __init__(self, name):
        self.name = name

def train(config):
    for epoch in range(resumed() + 1, 100):
        wait_at(f"{config['x']}-{epoch}")
        tune.report({"epoch": epoch, "model": config["model"].name}, checkpoint=saved(epoch))
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
    path = bench.write(EXTENDING)

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


def ran(bench: Bench) -> Counter[tuple[int, int]]:
    """How often each (trial, epoch) ran."""
    return Counter(
        (int(note["trial"].rpartition("_")[2]), note["iteration"])
        for note in bench.notes()
        if note["what"] == "ran"
    )


def test_finished_trials_are_not_run_again_and_new_ones_are_the_same_as_without_a_crash(
    bench: Bench,
) -> None:
    gate = bench.gate("2-2")
    script = bench.start(samples=3, at_once=1)
    script.wait_for("at 2 2")
    script.dies()
    gate.open()
    restored = bench.restore().succeeds()
    again = ran(bench)
    assert {key for key, times in again.items() if times > 1} == {(2, 2)}
    assert bench.problems(tensorboard=True) == []
    undisturbed = bench.start(samples=3, at_once=1, name="other").succeeds()
    configs = [[found["config"] for found in results(s)] for s in (restored, undisturbed)]
    assert configs[0] == configs[1]
    assert len(configs[0]) == 6


def test_errored_trials_stay_errored_continue_or_begin_again_as_asked(bench: Bench) -> None:
    bench.options["fail"] = [[1, 3]]
    bench.start().succeeds()
    left = results(bench.restore().succeeds())
    assert [found["epoch"] for found in left] == [4, 2]
    assert "cannot do epoch 3" in left[1]["error"]
    assert max(ran(bench).values()) == 1

    resumed = results(bench.restore({"resume_errored": True}).succeeds())
    assert [found["error"] for found in resumed] == [None, None]
    assert ran(bench)[1, 2] == 1
    assert ran(bench)[1, 3] == 2
    assert bench.problems(tensorboard=True) == []


def test_restart_errored_begins_again_from_the_first_epoch(bench: Bench) -> None:
    bench.options["fail"] = [[1, 3]]
    bench.start(num_to_keep=1).succeeds()
    restarted = results(bench.restore({"restart_errored": True}).succeeds())
    assert [found["epoch"] for found in restarted] == [4, 4]
    assert ran(bench)[1, 1] == 2
    assert ran(bench)[0, 1] == 1


def test_a_relative_path_is_restored_from_another_directory(bench: Bench) -> None:
    (bench.folder / "here").mkdir()
    (bench.folder / "there").mkdir()
    path = bench.write(
        f"""
import os, runpy, sys
sys.argv[1] = sys.argv[2]
os.chdir(sys.argv[3])
runpy.run_path({str(Path(__file__).parent / "user_script.py")!r}, run_name="__main__")
"""
    )
    import json

    options = {"storage": "../storage", "epochs": 4}
    gate = bench.gate("any-3")
    script = bench.run(path, "", json.dumps(options), str(bench.folder / "here"))
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.dies()
    gate.open()
    options |= {"restore": {}, "path": "storage/run"}
    restored = bench.run(path, "", json.dumps(options), str(bench.folder)).succeeds()
    assert epochs_of(restored) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_finished_experiment_restores_to_its_results_at_once(bench: Bench) -> None:
    bench.start().succeeds()
    before = len(bench.notes())
    for _ in range(2):
        restored = results(bench.restore().succeeds())
        assert [found["epoch"] for found in restored] == [4, 4]
    assert len(bench.notes()) == before
    assert bench.problems(tensorboard=True) == []


def test_results_can_be_had_after_a_restore_before_it_is_fitted(killed: Bench) -> None:
    path = killed.write(
        """
import sys
from holdfast import tune
results = tune.Tuner.restore(sys.argv[1]).get_results()
print(sorted(result.metrics["epoch"] for result in results), len(results))
results = tune.Tuner.restore(sys.argv[1]).fit()
print([tune.Result.from_path(result.path).metrics["epoch"] for result in results])
"""
    )
    script = killed.run(path, str(killed.root)).succeeds()
    assert script.stdout.splitlines() == ["[2, 2] 2", "[4, 4]"]


def test_fit_under_the_name_of_an_unfinished_experiment_is_refused(killed: Bench) -> None:
    script = killed.start()
    assert script.ends() == 1
    script.finish_reading()
    assert "ExperimentExists" in script.stderr
    assert f"Tuner.restore({str(killed.root)!r}" in script.stderr
    assert sys.platform == "linux"
    assert os.path.isdir(killed.root)
