"""Holds a trial after its n-th report, so that a test can kill a script which knows nothing of it.

`environ_for(n)` is for the script. Python imports `sitecustomize` in the folder `hold` at its
start; in the warm parent that wraps `report()`. A trial that has n reports in the journal marks
`reported` and waits at the gate of this name, which is open unless the test has closed it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.rig import ROOT
from tests.rig.script import mark, wait_at

REPORTED: Final = "reported"
_VARIABLE: Final = "HOLDFAST_TEST_HELD_REPORT"
_FOLDER: Final = Path(__file__).parent / "hold"


def environ_for(report: int) -> dict[str, str]:
    """The variables of a script whose trials are held after this report, from 1."""
    return {_VARIABLE: str(report), "PYTHONPATH": f"{_FOLDER}{os.pathsep}{ROOT}"}


def is_warm_parent() -> bool:
    """Whether this process forks workers, or is a worker in an interpreter of its own."""
    return any("runtime.warm" in word for word in sys.orig_argv)


def install(environ: Mapping[str, str], wraps: bool) -> None:
    """Called by `sitecustomize`."""
    if not wraps or _VARIABLE not in environ:
        return
    from holdfast.experiment.worker.session import Session

    report = Session.report

    @functools.wraps(report)
    def held(session: Session, *args: Any, **kwargs: Any) -> None:
        report(session, *args, **kwargs)
        if session.iteration >= int(environ[_VARIABLE]):
            mark(REPORTED, session.assignment.trial_id, session.iteration)
            wait_at(REPORTED)

    Session.report = held  # type: ignore[assignment, method-assign]
