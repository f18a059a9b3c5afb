"""User code that forks, reports from threads, closes its streams or raises oversized errors."""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.runtime import process_control
from holdfast.text import errors

LONG = 200_000_000


# -- children that it forks -----------------------------------------------------------------------


def returns() -> None:
    """The child returns from the user's function, and the parent does not know of it."""


def raises() -> None:
    raise ValueError("only in the child")


def exits() -> None:
    sys.exit(3)


def reports() -> None:
    tune.report({"n": 100})


FORKS = {"returns": returns, "raises": raises, "exits": exits, "reports": reports}
STATUS = {"returns": 0, "raises": 1, "exits": 3, "reports": 1}


def forked_loop(config: dict[str, Any]) -> None:
    tune.report({"n": 1})
    child = os.fork()
    if child == 0:
        FORKS[config["way"]]()
        return
    _, status = os.waitpid(child, 0)
    for n in range(2, 5):
        tune.report({"n": n, "status": os.waitstatus_to_exitcode(status)})


class Forked(tune.Trainable):
    """The child comes back from `step`, and would report a row."""

    def setup(self, config: dict[str, Any]) -> None:
        self.status = -1
        self.way = config["way"]

    def step(self) -> dict[str, Any]:
        if self.iteration == 1:
            child = os.fork()
            if child == 0:
                FORKS[self.way]()
                return {"n": 100, "done": True}
            _, status = os.waitpid(child, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return {"n": self.iteration + 1, "status": self.status, "done": self.iteration == 3}


def generating(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"n": 1}
    child = os.fork()
    if child == 0:
        yield {"n": 100}
        return
    _, status = os.waitpid(child, 0)
    for n in range(2, 5):
        yield {"n": n, "status": os.waitstatus_to_exitcode(status)}


def rows(result: tune.Result) -> list[int]:
    frame = result.metrics_dataframe
    assert frame is not None
    return [int(n) for n in frame["n"]]


@pytest.mark.parametrize("trainable", [forked_loop, Forked])
def test_a_forked_child_does_not_act_for_its_trial(fit: Any, trainable: Any) -> None:
    results = fit(trainable, {"way": tune.grid_search(sorted(FORKS))})
    for result in results:
        way = result.config["way"]
        assert result.error is None, way
        assert rows(result) == [1, 2, 3, 4], way
        assert result.metrics["status"] == STATUS[way], way
    told = {r.config["way"]: Path(r.path, "stderr").read_text() for r in results}
    assert "only in the trial's own process" in told["reports"]
    assert told["returns"] == told["exits"] == ""


def test_a_forked_child_of_a_generator_reports_nothing(fit: Any) -> None:
    result = fit(generating)[0]
    assert rows(result) == [1, 2, 3, 4]
    assert result.metrics["status"] == 0


def test_a_forked_child_in_debug_mode_does_not_continue_with_the_script(run_script: Any) -> None:
    done = run_script(
        "import os\n"
        "from holdfast import tune\n"
        "def train(config):\n"
        "    tune.report({'n': 1})\n"
        "    if os.fork() == 0:\n"
        "        return\n"
        "    os.wait()\n"
        "    tune.report({'n': 2})\n"
        "results = tune.Tuner(train, run_config=tune.RunConfig(verbose=0)).fit()\n"
        "print('ended with', results[0].metrics['n'], flush=True)\n",
        HOLDFAST_DEBUG="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended with 2") == 1 == done.stdout.count("ended with")


# -- threads --------------------------------------------------------------------------------------


def in_two_threads(config: dict[str, Any]) -> None:
    def work(name: str) -> None:
        for n in range(50):
            tune.report({"who": name, "n": n})

    thread = threading.Thread(target=work, args=("other",))
    thread.start()
    work("main")
    thread.join()


def test_threads_that_report_at_once_take_turns(fit: Any) -> None:
    result = fit(in_two_threads)[0]
    assert result.error is None
    frame = result.metrics_dataframe
    assert list(frame["training_iteration"]) == list(range(1, 101))
    for who in ("main", "other"):
        assert list(frame[frame["who"] == who]["n"]) == list(range(50))


# -- streams --------------------------------------------------------------------------------------


class Mute:
    def write(self, text: str) -> int:
        return len(text)


class Raising(Mute):
    def flush(self) -> None:
        raise RuntimeError("no flush here")


def close() -> None:
    sys.stdout.close()


def close_both() -> None:
    sys.stdout.close()
    sys.stderr.close()


def none() -> None:
    sys.stdout = sys.stderr = None


def delete() -> None:
    del sys.stdout, sys.stderr


def replace_by_mute() -> None:
    sys.stdout = sys.stderr = Mute()


def replace_by_raising() -> None:
    sys.stdout = sys.stderr = Raising()


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (close, close_both, none, delete, replace_by_mute, replace_by_raising)
}


def muted(config: dict[str, Any]) -> str:
    tune.report({"n": 1})
    WAYS[config["way"]]()
    return "what is no metric is said on stderr"


def test_what_becomes_of_its_streams_does_not_fail_a_trial(fit: Any) -> None:
    results = fit(muted, {"way": tune.grid_search(sorted(WAYS))})
    assert {r.config["way"]: r.error for r in results} == dict.fromkeys(WAYS)
    assert all(r.metrics["n"] == 1 for r in results)


# -- what it leaves behind when it returns -------------------------------------------------------


def block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))


def ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, process_control.STOP):
        signal.signal(number, signal.SIG_IGN)


def let_warnings_raise() -> None:
    warnings.simplefilter("error")


def forget_modules() -> None:
    sys.modules.clear()
    sys.path.clear()


LEFT: dict[str, Callable[[], object]] = {
    "an exit function that raises": lambda: atexit.register(int, "no number"),
    "an exit function that ends the process": lambda: atexit.register(os._exit, 3),
    "an exit function that kills it": lambda: atexit.register(os.kill, os.getpid(), 9),
    "no environment": os.environ.clear,
    "no streams": lambda: os.closerange(0, 3),
    "blocked signals": block_signals,
    "ignored signals": ignore_signals,
    "warnings that raise": let_warnings_raise,
    "another directory": lambda: os.chdir("/"),
    "no directory": lambda: shutil.rmtree(os.getcwd()),
    "no modules": forget_modules,
    "no room for files": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    "no descriptors": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)),
    "a thread that raises": lambda: threading.Thread(target=int, args=("no number",)).start(),
}


def leaving(config: dict[str, Any]) -> None:
    tune.report({"n": 1})
    LEFT[config["way"]]()


def test_what_a_finished_function_leaves_behind_does_not_fail_it(fit: Any) -> None:
    results = fit(leaving, {"way": tune.grid_search(sorted(LEFT))})
    assert {r.config["way"]: r.error for r in results} == dict.fromkeys(LEFT)


class Uncleanly(tune.Trainable):
    def step(self) -> dict[str, Any]:
        if self.config["way"] == "fails":
            raise ValueError("the cause")
        return {"n": 1, "done": True}

    def cleanup(self) -> None:
        raise RuntimeError("in cleanup")


def test_an_error_of_cleanup_is_shown_and_neither_fails_a_class_nor_hides_its_error(
    fit: Any,
) -> None:
    failed, finished = fit(Uncleanly, {"way": tune.grid_search(["fails", "ends"])})
    assert finished.error is None
    assert "the cause" in str(failed.error)
    for result in (failed, finished):
        assert "in cleanup" in Path(result.path, "stderr").read_text()


def test_a_removed_directory_of_the_script_fails_no_trial(run_script: Any) -> None:
    script = """
import os, shutil
from holdfast import tune
os.mkdir("gone")
os.chdir("gone")
def train(config):
    tune.report({"n": 1})
    shutil.rmtree(os.environ["TUNE_ORIG_WORKING_DIR"])
result = tune.Tuner(train, run_config=tune.RunConfig(storage_path=os.path.abspath(".."))).fit()[0]
print("error", result.error)
"""
    done = run_script(script)
    assert "error None" in done.stdout, done.stderr


# -- errors ---------------------------------------------------------------------------------------


class Unprintable(ValueError):
    def __str__(self) -> str:
        raise SystemExit("even this")


def huge() -> None:
    raise ValueError("x" * LONG)


def chained() -> None:
    error: Exception = ValueError("the first")
    for number in range(20_000):
        following = ValueError(number)
        following.__cause__ = error
        error = following
    raise error


def unprintable() -> None:
    raise Unprintable


class Endless(ValueError):
    def __str__(self) -> str:
        while True:
            pass


class Waiting(ValueError):
    """No signal ends such a wait, nor the thread that waits."""

    def __str__(self) -> str:
        threading.Lock().acquire() and threading.Event().wait()
        return ""


class Numeric(ValueError):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Holder:
    def __repr__(self) -> str:
        threading.Event().wait()
        return ""


def endless() -> None:
    raise Endless


def caused() -> None:
    raise ValueError("the last") from Waiting()


def numeric() -> None:
    raise Numeric


def nameless() -> None:
    class Reticent(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__qualname__", "__name__"):
                raise RuntimeError("no name")
            return super().__getattribute__(name)

    class Nameless(ValueError, metaclass=Reticent):
        pass

    raise Nameless("of no name")


def held() -> None:
    raise ValueError(Holder())


def metric() -> None:
    tune.report({"value": Holder()})


def key() -> None:
    tune.report({Holder(): 1})


WAYS_TO_FAIL = (huge, chained, unprintable, endless, caused, numeric, nameless, held, metric, key)
ERRORS: dict[str, Callable[[], None]] = {way.__name__: way for way in WAYS_TO_FAIL}
# For code that never ends. One of two texts of `caused` does end, also on a busy machine.
DEADLINES_S = {**dict.fromkeys(("endless", "held", "metric", "key"), 0.3), "caused": 1.0}


def failing(config: dict[str, Any]) -> None:
    errors.TEXT_DEADLINE_S = DEADLINES_S.get(config["way"], errors.TEXT_DEADLINE_S)
    tune.report({"n": 1})
    ERRORS[config["way"]]()


def test_an_error_that_is_too_large_keeps_its_type_and_both_ends(fit: Any) -> None:
    results = fit(failing, {"way": tune.grid_search(sorted(ERRORS))})
    failures = {r.config["way"]: r.error.failure for r in results if r.error}
    assert {way: failure.type_name for way, failure in failures.items()} == {
        "huge": "ValueError",
        "chained": "ValueError",
        "unprintable": "Unprintable",
        "endless": "Endless",
        "caused": "ValueError",
        "numeric": "Numeric",
        "nameless": "nameless.<locals>.Nameless",
        "held": "ValueError",
        "metric": "InvalidMetrics",
        "key": "InvalidMetrics",
    }
    assert all(
        len(failure.message) <= 1 << 16 and len(failure.traceback) <= 1 << 16
        for failure in failures.values()
    )
    assert "characters left out" in failures["huge"].message
    assert "19999" in failures["chained"].message
    assert "its __str__ raised SystemExit" in failures["unprintable"].message
    assert "its __str__ did not end within 0.3 s" in failures["endless"].message
    assert failures["caused"].message == "the last"
    assert "in caused" in failures["caused"].traceback
    assert "its __str__ raised TypeError" in failures["numeric"].message
    assert failures["nameless"].message == "of no name"
    assert "its __str__ did not end" in failures["held"].message
    for way in ("metric", "key"):
        assert "its __repr__ did not end within 0.3 s" in failures[way].message


# -- a launcher that would start the script again -------------------------------------------------


LAUNCHER = """
class _SubprocessScriptLauncher:
    def launch(self):
        self._call_children_scripts()

    def _call_children_scripts(self):
        print("the script starts again")
"""


def test_the_launcher_of_lightning_is_refused_with_what_works(
    fit: Callable[..., tune.ResultGrid], tmp_path: Path
) -> None:
    """A package of its name and form stands in for Lightning."""
    inner = "standin_fabric.strategies.launchers"
    folder = tmp_path / "lib"
    for at in range(1, 4):
        package = folder.joinpath(*inner.split(".")[:at])
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
    (package / "subprocess_script.py").write_text(LAUNCHER)

    def launching(config: dict[str, Any]) -> None:
        import importlib

        sys.path.insert(0, str(folder))
        found = importlib.import_module(f"{inner}.subprocess_script")
        found._SubprocessScriptLauncher().launch()

    (result,) = fit(launching)
    assert "the script starts again" not in Path(result.path, "stdout").read_text()
    told = str(result.error)
    assert all(way in told for way in ("ddp_spawn", "ddp_fork", "TorchTrainer")), told
