"""A script whose callbacks and similar code fork: each child returns from them as `way` says.

Its argument is the storage path. `WAY` and `CHILDREN`, a file for the exit of each child, are in
the environment of all its processes.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from holdfast import tune
from holdfast.experiment.trackers.tracker import Tracker
from holdfast.tune.schedulers import ResourceChangingScheduler
from holdfast.tune.search import Searcher

_forked: set[str] = set()


def fork(place: str) -> None:
    """Fork once per place and process; returns in the child, too, unless it must raise or exit."""
    if place in _forked:
        return
    _forked.add(place)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        note(place, os.waitstatus_to_exitcode(status))
    elif os.environ["WAY"] == "raises":
        raise ValueError("only in the child")
    elif os.environ["WAY"] == "exits":
        sys.exit(3)


def note(place: str, what: object) -> None:
    fd = os.open(os.environ["CHILDREN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{place} {what}\n".encode())
    os.close(fd)


class Forking(tune.Callback):
    def setup(self, *args: Any, **info: Any) -> None:
        signal.raise_signal(signal.SIGALRM)  # handled in the main thread, inside of fit()
        fork("callback setup")

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        fork("callback")

    def get_state(self) -> dict[str, Any]:
        fork("callback state")
        return {"n": 1}

    def on_experiment_end(self, *args: Any, **info: Any) -> None:
        fork("callback end")


class Tracking(Tracker):
    def setup(self, *args: Any, **info: Any) -> None:
        fork("tracker setup")

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        note("tracker row", iteration)
        fork("tracker")

    def flush(self) -> None:
        fork("tracker flush")

    def on_experiment_end(self, *args: Any, **info: Any) -> None:
        fork("tracker end")


class Reporting(tune.ProgressReporter):
    def setup(self, *args: Any, **info: Any) -> None:
        fork("reporter setup")

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        fork("reporter")
        return False

    def report(self, trials: list[Any], done: bool, *info: Any) -> None:
        fork("reporter end")


class Searching(Searcher):
    def set_search_properties(self, *args: Any, **info: Any) -> bool:
        fork("searcher setup")
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        fork("searcher")
        return {"n": 1}

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        fork("searcher end")


def stop(trial_id: str, result: dict[str, Any]) -> bool:
    fork("stopper")
    return False


def allocate(*about: Any) -> None:
    fork("scheduler")


def name(trial: Any) -> str:
    fork("name")
    return str(trial)


class Pickled:
    def __reduce__(self) -> Any:
        fork("pickle")
        return Pickled, ()


class Counting(tune.Trainable):
    def setup(self, config: dict[str, Any], given: Any = None) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "done": self.count == 4}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = checkpoint["count"]


def on_alarm(*about: Any) -> None:
    fork("signal handler")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, on_alarm)
    results = tune.Tuner(
        tune.with_parameters(Counting, given=Pickled()),
        tune_config=tune.TuneConfig(
            search_alg=Searching(metric="count", mode="max"),
            scheduler=ResourceChangingScheduler(None, allocate),
            trial_name_creator=name,
            num_samples=2,
        ),
        run_config=tune.RunConfig(
            storage_path=sys.argv[1],
            name="run",
            callbacks=[Forking(), Tracking()],
            progress_reporter=Reporting(),
            stop=stop,
        ),
    ).fit()
    frames: list[Any] = [result.metrics_dataframe for result in results]
    print("ENDED with", [list(frame["count"]) for frame in frames], flush=True)
