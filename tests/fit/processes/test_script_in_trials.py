"""The script as its trials find it: its arguments, its `__main__`, and children that import it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.script import LONGEST_S

pytestmark = pytest.mark.process

SCRIPT = """
import concurrent.futures, multiprocessing, os, sys
from holdfast import train, tune
import parsed  # a module that reads the arguments when it is imported

class Point:
    def __init__(self, x):
        self.x = x

def squared(point):
    return Point(point.x**2)

def look(config):
    import __main__

    spec, found = __main__.__spec__, []
    for method in config["methods"]:
        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            found += [point.x for point in pool.map(squared, [Point(2)])]
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            found.append(pool.submit(squared, Point(3)).result().x)
    tune.report({
        "found": found,
        "argv": sys.argv,
        "orig_argv": sys.orig_argv[1:],
        "parsed": parsed.EPOCHS,
        "file": __main__.__file__,
        "spec": spec and spec.name,
        "package": __main__.__package__,
    })

def run():
    options = {"run_config": tune.RunConfig(storage_path=sys.argv[-1])}
    tuned = tune.Tuner(look, param_space={"methods": ["spawn", "forkserver"]}, **options).fit()
    trained = train.DataParallelTrainer(
        look, train_loop_config={"methods": []},
        scaling_config=train.ScalingConfig(num_workers=2), **options,
    ).fit()
    os.write(1, __import__("json").dumps([tuned[0].metrics, trained.metrics]).encode())

if __name__ == "__main__":
    run()
"""
PARSED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("storage")
EPOCHS = parser.parse_args().epochs
"""
# A native thread makes forks unsafe: then each worker is a fresh interpreter.
A_THREAD = (
    "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
)
BY_A_CHILD = SCRIPT.replace(
    "    run()\n",
    """    child = multiprocessing.get_context("spawn").Process(target=run)
    child.start()
    child.join()
    sys.exit(child.exitcode)
""",
)


@pytest.mark.parametrize("workers", ["forked", "fresh", "of a package", "of a child"])
def test_a_trial_and_its_children_find_the_script_as_it_was_started(
    tmp_path: Path, workers: str
) -> None:
    folder = tmp_path / "script"
    place = folder / "pkg" if workers == "of a package" else folder
    place.mkdir(parents=True)
    main = place / "main.py"
    main.write_text(BY_A_CHILD if workers == "of a child" else SCRIPT)
    (folder / "parsed.py").write_text((A_THREAD if workers == "fresh" else "") + PARSED)
    given = ["--epochs", "5", str(tmp_path / "results")]
    start = ["-m", "pkg.main"] if workers == "of a package" else ["main.py"]
    done = subprocess.run(
        [sys.executable, *start, *given],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr
    assert ("Forking is not safe" in done.stderr) is (workers == "fresh")
    tuned, trained = json.loads(done.stdout)
    assert tuned["found"] == [4, 9, 4, 9]
    for metrics in (tuned, trained):
        assert metrics["parsed"] == 5
        if workers == "of a package":
            assert metrics["argv"] == [str(main), *given]
            assert (metrics["spec"], metrics["package"]) == ("pkg.main", "pkg")
        else:
            assert metrics["argv"] == ["main.py", *given]
            assert metrics["spec"] is None
        assert metrics["file"] == str(main)
        if workers != "of a child":
            assert metrics["orig_argv"][-len(given) - len(start) :] == [*start, *given]


UNGUARDED = """
import multiprocessing, sys
from holdfast import tune

def nothing(): ...

def train(config):
    child = multiprocessing.get_context(config["method"]).Process(target=nothing)
    child.start()
    child.join()
    tune.report({"code": child.exitcode})

tuner = tune.Tuner(
    train, param_space={"method": tune.grid_search(["spawn", "forkserver"])},
    run_config=tune.RunConfig(storage_path=sys.argv[1], verbose=0),
)
for result in tuner.fit():
    print("code", (result.metrics or {}).get("code"))
"""


def test_children_of_an_unguarded_script_do_not_run_the_experiment_again(
    run_script: Any, tmp_path: Path
) -> None:
    done = run_script(UNGUARDED, str(tmp_path / "results"))
    # From Python 3.14 on the fork server itself imports the script, and ends with that error.
    codes = "code 1\ncode None\n" if sys.version_info >= (3, 14) else "code 1\ncode 1\n"
    assert done.stdout == codes, done.stderr
    (experiment,) = (tmp_path / "results").iterdir()
    for stderr in experiment.glob("train_*/stderr"):
        assert (
            f"importing the script again started fit() ({tmp_path}/script/script.py:17): put it "
            f"under `if __name__ == '__main__':`"
        ) in stderr.read_text()


AT_THE_END = """
import atexit
from holdfast import tune

@atexit.register
def late():
    tune.Tuner(print, run_config=tune.RunConfig(storage_path="results")).fit()
"""


def test_a_fit_when_python_ends_is_refused_with_a_sentence(
    run_script: Any, tmp_path: Path
) -> None:
    done = run_script(AT_THE_END)
    assert "TuneError: fit() was called while Python ends (in an atexit handler" in done.stderr
    assert not (tmp_path / "script" / "results").exists()


BELOW_A_PATH = """
import os, subprocess, sys
import holdfast
from holdfast import tune

def train(config):
    code = "import library; print(library.FOUND)"
    tune.report({"found": subprocess.check_output([sys.executable, "-c", code], text=True)})

if __name__ == "__main__":
    holdfast.init(local_mode=sys.argv[1] == "local")
    (result,) = tune.Tuner(train, run_config=tune.RunConfig(storage_path="out", verbose=0)).fit()
    print(result.metrics["found"], os.environ["PYTHONPATH"])
"""


@pytest.mark.parametrize("where", ["local", "worker", "agent"])
def test_a_relative_pythonpath_reaches_programs_that_a_trial_starts(
    run_script: Any, tmp_path: Path, where: str
) -> None:
    (tmp_path / "script" / "lib").mkdir(parents=True)
    (tmp_path / "script" / "lib" / "library.py").write_text("FOUND = 'here'")
    cluster = "local://?agents=1" if where == "agent" else ""
    given = os.pathsep.join(["lib", *filter(None, [os.environ.get("PYTHONPATH")])])
    done = run_script(BELOW_A_PATH, where, PYTHONPATH=given, HOLDFAST_CLUSTER=cluster)
    assert done.stdout == f"here\n {given}\n", done.stderr
