"""Runs an example as a user does, while a test decides which of its ranks dies, and when.

`driver.py examples/train/x.py arguments...`. The example is untouched; only what it calls
`train.report` notes and marks each iteration, and waits at the gate `report-<iteration>` before
it. HOLDFAST_TEST_DIES="<attempt> <iteration> <rank>" kills that rank there.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.experiment.session import current
from holdfast.testing.script import mark, note, wait_at

Loop = Callable[[dict[str, Any]], None]


def watched(loop: Loop) -> Loop:
    """The same loop, in a worker whose reports are watched."""

    def run(config: dict[str, Any]) -> None:
        # Warnings are errors here; these have some about calls of their own.
        warnings.filterwarnings("ignore", module=r"torch\.distributed|lightning|mlflow|comet_ml")
        plainly = train.report

        def report(metrics: dict[str, Any], **more: Any) -> None:
            context = train.get_context()
            rank, attempt = context.get_world_rank(), context.get_attempt()
            facts = {
                "trial": context.get_trial_id(),
                "attempt": attempt,
                "iteration": current("the test").iteration + 1,
            }
            if rank == 0:
                note(what="ran", **facts)
                mark("at", facts["iteration"], attempt)
            wait_at(f"report-{facts['iteration']}")
            if os.environ["HOLDFAST_TEST_DIES"] == f"{attempt} {facts['iteration']} {rank}":
                os.kill(os.getpid(), signal.SIGKILL)
            plainly(metrics, **more)
            if rank == 0:
                note(what="acknowledged", checkpoint=True, **facts)

        train.report = report  # type: ignore[assignment]
        loop(config)

    return run


def main() -> None:
    path = Path(sys.argv.pop(1))
    sys.path.insert(0, str(path.parent))
    example = import_module(path.stem)
    for name in ("train_fn", "train_func", "autologged"):
        if hasattr(example, name):
            setattr(example, name, watched(getattr(example, name)))
    example.main()


if __name__ == "__main__":
    main()
