"""The cost of the journal at a rate of reports: `journal_cost.py STORAGE RATE SECONDS`.

Prints the CPU seconds of this process for encoding records, appending them and fsync, those of a
snapshot of the experiment, and how many seconds it ran.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.experiment.control import controller
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.snapshots import load_newest_snapshot, write_snapshot
from holdfast.syncer.journal.journal import Journal, Unsynced

storage, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
spent = {"journal_s": 0.0}
_SNAPSHOTS = 5


def timed(perform: Callable[..., Any]) -> Callable[..., Any]:
    """Count the CPU of the thread that runs it; the clock itself takes half a microsecond."""

    def performed(*args: Any, **kwargs: Any) -> Any:
        before_s = time.thread_time()
        try:
            return perform(*args, **kwargs)
        finally:
            spent["journal_s"] += time.thread_time() - before_s

    return performed


def train(config: dict[str, Any]) -> None:
    began_s = time.perf_counter()
    for step in range(int(config["rate"] * config["seconds"])):
        ahead_s = step / config["rate"] - (time.perf_counter() - began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
        tune.report({"loss": 0.5 * step, "acc": 0.25})


def main() -> None:
    for place, name in ((controller, "pack"), (Journal, "append"), (Unsynced, "force")):
        setattr(place, name, timed(getattr(place, name)))
    began_s = time.perf_counter()
    tune.Tuner(
        train,
        param_space={"rate": rate, "seconds": seconds},
        run_config=tune.RunConfig(storage_path=storage, name="run", verbose=0),
    ).fit()
    ran_s = time.perf_counter() - began_s
    print(json.dumps({**spent, "snapshot_s": snapshot_s(), "ran_s": ran_s}))


def snapshot_s() -> float:
    """CPU seconds of one snapshot; another process makes one every ten seconds."""
    layout = Layout(Path(storage, "run"))
    loaded = load_newest_snapshot(layout)
    assert loaded is not None
    assert loaded.snapshot is not None
    before_s = time.process_time()
    for _ in range(_SNAPSHOTS):
        write_snapshot(layout, loaded.snapshot)
    return (time.process_time() - before_s) / _SNAPSHOTS


if __name__ == "__main__":
    main()
