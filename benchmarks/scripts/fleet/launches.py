"""How long launches take: `launches.py STORAGE COUNT`.

COUNT trials run one after the other. Prints the seconds of a median launch: from the order to the
launcher until the first message of the worker.
"""

import json
import sys
import time
from statistics import median
from typing import Any

from holdfast import tune
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.local_launcher import LocalLauncher

storage, count = sys.argv[1], int(sys.argv[2])
taken: list[float] = []


class Timed:
    """A listener whose worker's first message is timed."""

    def __init__(self, listener: Any) -> None:
        self._listener = listener
        self._began_s = time.perf_counter()
        self._has_started = False

    def on_message(self, message: Any) -> None:
        if not self._has_started:
            self._has_started = True
            taken.append(time.perf_counter() - self._began_s)
        self._listener.on_message(message)

    def on_exit(self, ending: Any) -> None:
        self._listener.on_exit(ending)


def watch(launcher: Any) -> None:
    launch = launcher.launch

    def timed(self: Any, name: str, listener: Any, **more: Any) -> Any:
        return launch(self, name, Timed(listener), **more)

    launcher.launch = timed


def noop(config: dict[str, Any]) -> None:
    tune.report({"x": 1})


def main() -> None:
    for launcher in (LocalLauncher, Fleet):
        watch(launcher)
    tune.Tuner(
        noop,
        param_space={"lr": 1},
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
    if len(taken) != count:
        raise SystemExit(f"{len(taken)} of {count} trials have started")
    print(json.dumps({"launch_s": median(taken[count // 10 :])}))


if __name__ == "__main__":
    main()
