"""What functions of scripts for Ray up to 2.6 call and get; only where `import ray` means holdfast
(`holdfast.ray_names`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final

from holdfast import ray_path
from holdfast.experiment.worker.session import Session, here, running
from holdfast.syncer.checkpoint.checkpoint import Checkpoint

_PARAMETER: Final = "checkpoint_dir"


@contextmanager
def checkpoint_dir(step: Any) -> Iterator[str]:
    """A new directory. With the files that the block writes there, it is the checkpoint of the
    next report, unless that report has one of its own. `step` has no effect.

    Raises NotInTrial outside a trial.
    """
    if (session := here("tune.checkpoint_dir()")) is None:
        with TemporaryDirectory() as unused:
            yield unused
        return
    folder = str(session.staging_directory())
    yield folder
    session.waiting = Checkpoint.from_directory(folder)


def is_session_enabled() -> bool:
    """Whether the caller runs in a trial."""
    return running() is not None


@contextmanager
def older_arguments(trainable: Any, session: Session) -> Iterator[dict[str, str]]:
    """`checkpoint_dir=`, the files to resume from, for a function with such a parameter whose
    default is None; they are there until the block ends."""
    start = session.checkpoint() if ray_path.is_active() and _takes_it(trainable) else None
    if start is None:
        yield {}
        return
    with start.as_directory() as folder:
        yield {_PARAMETER: folder}


def _takes_it(trainable: Any) -> bool:
    try:
        found = inspect.signature(trainable).parameters.get(_PARAMETER)
    except ValueError:  # a builtin without a signature
        return False
    return found is not None and found.default is None
