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
from tests.rig import checker
from tests.rig.bench import Bench, copy_of_live, epochs_of, results, workbench
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


TUNE_RUN = """
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
    path = bench.write(TUNE_RUN)
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


EXTENDING = """
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


def test_unfinished_trials_can_be_left_as_they_are(killed: Bench) -> None:
    left = results(killed.restore({"resume_unfinished": False}).succeeds())
    assert [found["epoch"] for found in left] == [2, 2]
    assert (0, 4) not in ran(killed)


def test_restore_without_a_trainable_uses_the_pickled_one(killed: Bench) -> None:
    restored = results(killed.restore(give=False).succeeds())
    assert [found["epoch"] for found in restored] == [4, 4]
    assert killed.problems(tensorboard=True) == []


def test_a_copy_continues_by_itself_and_leaves_the_original_alone(bench: Bench) -> None:
    original, gate = bench.held_in(3)
    copy = copy_of_live(bench.root, bench.folder / "copy")
    gate.open()
    copied = bench.restore(path=str(copy)).succeeds()
    original.succeeds()
    for script in (original, copied):
        assert epochs_of(script) == [4, 4]
    assert checker.check(bench.root, ended=True, tensorboard=True) == []
    assert checker.check(copy, ended=True, tensorboard=True) == []


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


PARTS = """
import json, sys
from pathlib import Path
from holdfast import tune
from tests.rig.script import mark, note, wait_at

class Model:
    def __init__(self, name):
        self.name = name

def train(config):
    trial = tune.get_context().get_trial_id()
    start = 1
    if tune.get_checkpoint():
        with tune.get_checkpoint().as_directory() as folder:
            start = int(Path(folder, "epoch").read_text()) + 1
    for epoch in range(start, 4):
        wait_at(f"any-{epoch}")
        folder = tune.staging_directory() if hasattr(tune, "staging_directory") else None
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            tune.report({"epoch": epoch, "model": config["model"].name},
                        checkpoint=tune.Checkpoint.from_directory(folder))
        mark("reported", trial[-1], epoch)
"""


def test_objects_of_a_regiven_param_space_take_the_place_of_the_old_ones(bench: Bench) -> None:
    path = bench.write(
        PARTS
        + """
space = lambda kind: {"model": tune.grid_search([Model(f"{kind} 1"), Model(f"{kind} 2")])}
if __name__ == "__main__":
    storage = sys.argv[1]
    if sys.argv[2] == "begin":
        tuner = tune.Tuner(train, param_space=space("old"),
                           run_config=tune.RunConfig(storage_path=storage, name="run", verbose=0))
    else:
        tuner = tune.Tuner.restore(storage + "/run", train, param_space=space("new"))
    for result in tuner.fit():
        print("MODELS", [row for row in result.metrics_dataframe["model"]])
"""
    )
    gate = bench.gate("any-3")
    script = bench.run(path, str(bench.storage), "begin")
    script.wait_for("reported 0 2")
    script.wait_for("reported 1 2")
    script.dies()
    gate.open()
    restored = bench.run(path, str(bench.storage), "restore").succeeds()
    assert "MODELS ['old 1', 'old 1', 'new 1']" in restored.stdout
    assert "MODELS ['old 2', 'old 2', 'new 2']" in restored.stdout


def test_a_changed_param_space_is_refused_with_the_difference(bench: Bench) -> None:
    bench.start().succeeds()
    path = bench.write(
        """
import sys
from holdfast import tune
def train(config): ...
tune.Tuner.restore(sys.argv[1], train, param_space={
    "lr": tune.loguniform(1e-4, 1e-2), "kind": tune.grid_search(["a", "b"]), "new": 1})
"""
    )
    script = bench.run(path, str(bench.root))
    assert script.ends() == 1
    script.finish_reading()
    assert "lr" in script.stderr
    assert "new" in script.stderr
    assert "InvalidConfig" in script.stderr


def test_can_restore_knows_an_experiment_from_an_empty_folder(bench: Bench) -> None:
    bench.start().succeeds()
    (bench.folder / "empty").mkdir()
    path = bench.write(
        """
import sys
from holdfast import tune
print([tune.Tuner.can_restore(path) for path in sys.argv[1:]])
"""
    )
    script = bench.run(path, str(bench.root), str(bench.folder / "empty"), "/nowhere/at/all")
    script.succeeds()
    assert script.stdout.strip() == "[True, False, False]"


def test_restoring_where_nothing_is_says_so(bench: Bench) -> None:
    script = bench.restore()
    assert script.ends() == 1
    script.finish_reading()
    assert "NothingToRestore" in script.stderr
    assert str(bench.root) in script.stderr


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


def test_stop_function_and_callbacks_come_back_from_tuner_pkl(bench: Bench) -> None:
    path = bench.write(
        PARTS.replace('config["model"].name', '"x"')
        + """
def stop(trial_id, result):
    return result["epoch"] >= 3

class Watch(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        note(what="seen", epoch=result["epoch"])

if __name__ == "__main__":
    if sys.argv[2] == "begin":
        tuner = tune.Tuner(train, run_config=tune.RunConfig(
            storage_path=sys.argv[1], name="run", verbose=0, stop=stop, callbacks=[Watch()]))
    else:
        tuner = tune.Tuner.restore(sys.argv[1] + "/run")
    results = tuner.fit()
    print("EPOCH", results[0].metrics["epoch"])
""".replace("range(start, 4)", "range(start, 1000)")
    )
    text = path.read_text().replace("range(start, 4)", "range(start, 1000)")
    path.write_text(text)
    gate = bench.gate("any-2")
    script = bench.run(path, str(bench.storage), "begin")
    script.wait_for("reported 0 1")
    script.dies()
    gate.open()
    restored = bench.run(path, str(bench.storage), "restore").succeeds()
    assert "EPOCH 3" in restored.stdout
    seen = [note["epoch"] for note in bench.notes() if note["what"] == "seen"]
    assert seen[-2:] == [2, 3]


def test_fit_under_the_name_of_an_unfinished_experiment_is_refused(killed: Bench) -> None:
    script = killed.start()
    assert script.ends() == 1
    script.finish_reading()
    assert "ExperimentExists" in script.stderr
    assert f"Tuner.restore({str(killed.root)!r}" in script.stderr
    assert sys.platform == "linux"
    assert os.path.isdir(killed.root)
