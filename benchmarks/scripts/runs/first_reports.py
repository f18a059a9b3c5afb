"""Trials one after the other, with a report each: `first_reports.py LIBRARY WHERE COUNT STORAGE`.

WHERE the library is imported: `top` of the script, or `inside` the trial. Prints for each trial
the seconds from the start of its function to its report, and how many modules it has imported.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from holdfast import tune

works: Any = import_module("works")  # of this folder
library, where, count, storage = sys.argv[1:]


def main() -> None:
    works.quiet()
    # Modules that a function refers to are imported where the function is loaded.
    loaded = import_module(library) if where == "top" else None
    name = library

    def train(_: dict[str, Any]) -> None:
        seconds, imported = works.timed(name, loaded)
        tune.report({"seconds": seconds, "imported": imported})

    results = tune.Tuner(
        train,
        param_space={"trial": tune.grid_search(list(range(int(count))))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
    rows = [result.metrics or {} for result in results]
    print(json.dumps([(row["seconds"], row["imported"]) for row in rows]))


if __name__ == "__main__":
    main()
