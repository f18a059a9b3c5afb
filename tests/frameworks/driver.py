"""Runs an example as a user does; a test decides which of its ranks dies, and when.

`driver.py examples/x/y.py arguments...`. The example is unchanged; its reports, by any callback,
note and mark each iteration, and wait at the gate `report-<iteration>` first.
HOLDFAST_TEST_DIES="<attempt> <iteration> <rank>" kills that rank there. HOLDFAST_TEST_IGNORE may
be a JSON list of the framework's own warnings, `action:message:category`, which are not errors.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Loop = Callable[[dict[str, Any]], None]

# The name of the function that examples pass to a trainer.
LOOPS = ("train_func", "train_fn", "autologged")


def watched(loop: Loop) -> Loop:
    """The same loop, in a worker whose reports are watched."""

    def run(config: dict[str, Any]) -> None:
        from holdfast import train
        from holdfast.experiment.worker.session import current
        from tests.rig.script import mark, note, wait_at

        # Warnings are errors here; these have some about calls of their own.
        warnings.filterwarnings("ignore", module=r"torch\.distributed|lightning|mlflow|comet_ml")
        session, context = current("the test"), train.get_context()
        rank, attempt = context.get_world_rank(), context.get_attempt()
        plainly = session.report

        def report(metrics: object, checkpoint: Any = None, *more: Any) -> None:
            iteration = session.iteration + 1
            facts = {"trial": context.get_trial_id(), "attempt": attempt, "iteration": iteration}
            if rank == 0:
                note(what="ran", **facts)
                mark("at", iteration, attempt)
            wait_at(f"report-{iteration}")
            if os.environ["HOLDFAST_TEST_DIES"] == f"{attempt} {iteration} {rank}":
                os.kill(os.getpid(), signal.SIGKILL)
            plainly(metrics, checkpoint, *more)
            if rank == 0:
                note(what="acknowledged", checkpoint=checkpoint is not None, **facts)

        vars(session)["report"] = report
        loop(config)

    return run


def let_pass(lines: list[str]) -> None:
    """Set it here and in every process that this one starts."""
    for line in lines:
        action, message, category = line.split(":")
        known: Any = action
        warnings.filterwarnings(known, message, getattr(builtins, category))
    sys.warnoptions.extend(lines)


def main() -> None:
    let_pass(json.loads(os.environ.get("HOLDFAST_TEST_IGNORE", "[]")))
    path = Path(sys.argv.pop(1))
    # Instead of this folder, in which `tensorflow` and others are folders of tests.
    sys.path[0] = str(path.parent)
    example: Any = import_module(path.stem)
    for name in LOOPS:
        if hasattr(example, name):
            setattr(example, name, watched(getattr(example, name)))
    example.main()


if __name__ == "__main__":
    main()
