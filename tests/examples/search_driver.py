"""Runs an example of a search as a user does; a test decides where it stops.

`search_driver.py examples/search/x.py arguments...`. The example is unchanged; each report of a
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
from tests.rig.script import mark, wait_at


def stand(iteration: int) -> None:
    number = int(tune.get_context().get_trial_id()[-5:])
    mark("at", number, iteration)
    wait_at(f"at-{number}-{iteration}")


def held(train: Any) -> Any:
    """The same training, whose reports are marked."""
    return held_class(train) if isinstance(train, type) else held_function(train)


def held_function(train: Any) -> Any:
    def train_fn(config: dict[str, Any]) -> None:
        from holdfast.experiment.worker.session import current

        plainly, session = tune.report, current("the test")

        def report(metrics: Any, *given: Any, **more: Any) -> None:
            stand(session.iteration + 1)
            plainly(metrics, *given, **more)

        tune.report = report
        train(config)

    train_fn.__name__ = train_fn.__qualname__ = train.__name__
    return train_fn


def held_class(train: Any) -> Any:
    def step(self: Any) -> Any:
        stand(self.iteration + 1)
        return train.step(self)

    return type(train.__name__, (train,), {"step": step})


def main() -> None:
    if os.environ.get("HOLDFAST_TEST_IGNORE"):
        # Warnings of libraries about their own calls, at import or at each question.
        warnings.simplefilter("ignore")
    example = Path(sys.argv.pop(1))
    sys.path.insert(0, str(example.parent))
    begins, restores = tune.Tuner.__init__, tune.Tuner.restore

    def begin(tuner: Any, trainable: Any, **more: Any) -> None:
        begins(tuner, held(trainable), **more)

    def restore(path: Any, trainable: Any, **more: Any) -> Any:
        return restores(path, held(trainable), **more)

    vars_of: Any = tune.Tuner
    vars_of.__init__, vars_of.restore = begin, restore
    runpy.run_path(str(example), run_name="__main__")


if __name__ == "__main__":
    main()
