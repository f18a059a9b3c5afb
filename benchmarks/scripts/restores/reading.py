"""Reads the results of an experiment: `reading.py EXPERIMENT WHAT`, WHAT is one of `READERS`.

Prints the seconds from the start of the process until it is done, with all imports.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping

import psutil

from holdfast import tune


def rows(results: tune.ResultGrid) -> int:
    return len(results.get_dataframe())


def best_rows(results: tune.ResultGrid) -> int:
    return len(results.get_dataframe(filter_metric="loss", filter_mode="min"))


def best_of_all(results: tune.ResultGrid) -> int:
    return results.get_best_result("loss", "min", scope="all") is not None


READERS: Mapping[str, Callable[[tune.ResultGrid], int]] = {
    "get_dataframe()": rows,
    "get_dataframe(filter_metric=...)": best_rows,
    'get_best_result(scope="all")': best_of_all,
}


if __name__ == "__main__":
    found = READERS[sys.argv[2]](tune.load(sys.argv[1]))
    took_s = time.time() - psutil.Process().create_time()
    print(json.dumps({"found": found, "took_s": took_s}))
