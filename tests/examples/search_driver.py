"""Runs an example of a search as a user does, while a test decides where it is held.

`search_driver.py examples/search/x.py arguments...`. The example is untouched; each report of a
trial is marked `at <number of the trial> <iteration>` and waits at the gate of this name.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.testing.script import mark, wait_at


def held(train: Any) -> Any:
    """The same training, whose reports are marked."""

    def train_fn(config: dict[str, Any]) -> None:
        plainly, iterations = tune.report, iter(range(1, 1000))

        def report(metrics: Any, **more: Any) -> None:
            number, iteration = int(tune.get_context().get_trial_id()[-5:]), next(iterations)
            mark("at", number, iteration)
            wait_at(f"at-{number}-{iteration}")
            plainly(metrics, **more)

        tune.report = report
        train(config)

    return train_fn


def main() -> None:
    if os.environ.get("HOLDFAST_TEST_IGNORE"):
        # What libraries say of their own calls, on import or at each question.
        warnings.simplefilter("ignore")
    example = Path(sys.argv.pop(1))
    sys.path.insert(0, str(example.parent))
    curve: Any = __import__("curve")
    plainly = curve.main

    def main(*given: Any, train: Any = None, **more: Any) -> Any:
        return plainly(*given, train=held(train or curve.train_fn), **more)

    curve.main = main
    runpy.run_path(str(example), run_name="__main__")


if __name__ == "__main__":
    main()
