"""The end of a trial: all of its output is written, and all of its processes end."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast import tune

pytestmark = pytest.mark.process


# -- what it wrote ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With this setting no printed text could be left behind."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def outputs(result: tune.Result) -> tuple[str, str]:
    path = Path(result.path)
    return (path / "stdout").read_text(), (path / "stderr").read_text()


def test_what_an_exit_function_prints_is_in_the_trials_files(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        atexit.register(print, "bye", end="")
        atexit.register(print, "bye, error", end="", file=sys.stderr)
        tune.report({"a": 1})

    assert outputs(fit(train)[0]) == ("bye", "bye, error")


def test_what_a_thread_prints_after_the_end_is_in_the_trials_files(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        def speak() -> None:
            threading.main_thread().join()
            print("one more thing", end="")

        threading.Thread(target=speak).start()
        tune.report({"a": 1})

    assert outputs(fit(train)[0])[0] == "one more thing"


def test_an_exit_function_that_replaces_stdout_by_what_is_not_a_file_does_no_harm(
    fit: Any,
) -> None:
    def train(config: dict[str, Any]) -> None:
        def replace() -> None:
            print("still written", end="")
            sys.stdout = None
            sys.stderr = object()

        atexit.register(replace)
        tune.report({"a": 1})

    (result,) = fit(train)
    assert result.error is None
    assert outputs(result)[0] == "still written"


MODULE = """
import sys
print("said while it was imported")
LOG = open(sys.argv[1] + ".log", "a")
LOG.write("imported\\n")
"""

SCRIPT = """
import os, sys
from holdfast import tune
import its_module

def train(config):
    its_module.LOG.write(f"trial {config['n']}\\n")
    print("said by the trial")
    tune.report({"n": config["n"]})

if __name__ == "__main__":
    tune.Tuner(
        train,
        param_space={"n": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="exp", verbose=0),
    ).fit()
"""


def test_a_file_that_a_module_opened_keeps_what_each_trial_wrote_once(
    run_script: Any, tmp_path: Path
) -> None:
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "its_module.py").write_text(
        MODULE.replace("sys.argv[1]", repr(str(tmp_path / "results")))
    )
    run_script(SCRIPT, str(tmp_path / "results")).check_returncode()
    # The script itself imports the module, and so does the warm parent.
    log = (tmp_path / "results.log").read_text()
    assert sorted(log.splitlines()) == ["imported", "imported", "trial 0", "trial 1"]
    for trial in (tmp_path / "results" / "exp").glob("train_*"):
        assert (trial / "stdout").read_text() == "said by the trial\n"


MLFLOW = """
def end_run():
    print("the run has ended", end="")
"""

LOGS = """
import sys
import mlflow
from holdfast import tune

def train(config):
    mlflow  # imported before the worker was forked
    tune.report({"a": 1})

if __name__ == "__main__":
    tune.Tuner(
        train, run_config=tune.RunConfig(storage_path=sys.argv[1], name="exp", verbose=0)
    ).fit()
"""


def test_an_mlflow_run_that_is_left_open_ends_with_its_worker(
    run_script: Any, tmp_path: Path
) -> None:
    """MLflow registers this when it is imported, before the fork."""
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "mlflow.py").write_text(MLFLOW)
    run_script(LOGS, str(tmp_path / "results")).check_returncode()
    (trial,) = (tmp_path / "results" / "exp").glob("train_*")
    assert (trial / "stdout").read_text() == "the run has ended"


# -- what it started ----------------------------------------------------------------------------


def _session() -> int:
    code = "import signal\nprint(flush=True)\nwhile True: signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def _leave_session(tell: int) -> None:
    os.setsid()
    os.write(tell, str(os.getpid()).encode())
    while True:
        signal.pause()


def _daemon() -> int:
    """Started the old way: the process in between ends, and no one is the parent."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            _leave_session(writing)
        os._exit(0)
    os.waitpid(between, 0)
    return int(os.read(reading, 100))


def _child_of_multiprocessing() -> int:
    reading, writing = os.pipe()
    context = multiprocessing.get_context("fork")
    context.Process(target=_leave_session, args=(writing,), daemon=True).start()
    return int(os.read(reading, 100))


WAYS = [_session, _daemon, _child_of_multiprocessing]


def desert(config: dict[str, Any]) -> None:
    pid = config["way"]()
    alive = psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    tune.report({"pid": pid, "was_alive": alive})
    if config["killed"]:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("killed", [False, True])
def test_what_left_the_trials_session_ends_with_it(
    fit: Any, way: Any, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An exit function of multiprocessing waits for its child until both are killed.
    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "1")
    (result,) = fit(desert, {"way": way, "killed": killed})
    assert bool(result.error) == killed
    assert result.metrics["was_alive"]
    assert not psutil.pid_exists(result.metrics["pid"])


def test_another_attempt_begins_when_nothing_is_left_of_the_one_before(
    fit: Any, tmp_path: Path
) -> None:
    note = tmp_path / "pids"

    def train(config: dict[str, Any]) -> None:
        if note.exists():
            left = [int(pid) for pid in note.read_text().split()]
            tune.report({"left": [pid for pid in left if psutil.pid_exists(pid)]})
        else:
            note.write_text(" ".join(str(way()) for way in WAYS))
            os.kill(os.getpid(), signal.SIGKILL)

    (result,) = fit(train, failure_config=tune.FailureConfig(max_failures=1))
    assert len(note.read_text().split()) == len(WAYS)
    assert result.metrics["left"] == []


def test_an_interrupted_run_ends_also_where_the_end_of_a_worker_is_never_heard_of(
    run_script: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    ran = run_script(
        "import os, signal, time\n"
        "from holdfast import tune\n"
        "from holdfast.experiment.control import watch\n"
        "from holdfast.experiment.workers import actor\n"
        "actor.TrialActor.on_exit = lambda self, ending: None\n"
        "watch.LEEWAY_S = 0.5\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # some shells ignore it\n"
        "class Interrupts(tune.Callback):\n"
        "    def on_trial_result(self, iteration, trials, trial, result, **info):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "def train(config):\n"
        "    tune.report({'pid': os.getpid()})\n"
        "    time.sleep(3600)\n"
        "if __name__ == '__main__':\n"
        "    tune.Tuner(train, run_config=tune.RunConfig(callbacks=[Interrupts()])).fit()\n",
        HOLDFAST_STOP_GRACE_S="0.1",
        HOLDFAST_FLUSH_DEADLINE_S="0.1",
        HOLDFAST_CALLBACK_DEADLINE_S="0.1",
    )
    assert ran.returncode == -signal.SIGINT
    assert "Shutdown timed out after" in ran.stderr
