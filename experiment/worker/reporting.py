"""The parts of `report()`: training time, turns of threads, and upload modes."""

from __future__ import annotations

import threading
import time

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.checkpoint import CheckpointUploadMode
from holdfast.trial.errors import InvalidMetrics, TuneError


@dataclass(slots=True)
class TrainingClock:
    """Measures training time by a monotonic clock, so that setting the system's clock has no
    effect."""

    last: float
    total_s: float

    def lap(self) -> float:
        now = time.perf_counter()
        elapsed, self.last = now - self.last, now
        self.total_s += elapsed
        return elapsed


class OneAtATime:
    """A lock around a report.

    The thread that holds it gets an error instead of a deadlock: a signal handler of user code may
    call report() during a report.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0

    def __enter__(self) -> None:
        here = threading.get_ident()
        if self._holder == here:
            raise TuneError(
                "report() was called by a signal handler while the same thread was reporting: "
                "set a flag in the handler, and report in the loop"
            )
        self._lock.acquire()
        self._holder = here

    def __exit__(self, *_: object) -> None:
        self._holder = 0
        self._lock.release()

    def wait(self, within_s: float) -> None:
        """Wait until the lock is free, at most `within_s`."""
        if self._holder != threading.get_ident() and self._lock.acquire(timeout=within_s):
            self._lock.release()


def upload_mode(
    given: CheckpointUploadMode | str, checkpoint: Checkpoint | None, *, is_mirrored: bool
) -> CheckpointUploadMode:
    """The mode that `given` names. `is_mirrored`: storage is elsewhere.

    Raises InvalidMetrics if it is not a mode, or does not fit the checkpoint.
    """
    try:
        mode = CheckpointUploadMode(given)
    except ValueError as error:
        raise InvalidMetrics(
            f"checkpoint_upload_mode must be a CheckpointUploadMode (ASYNC, SYNC or "
            f"NO_UPLOAD), not {given!r}"
        ) from error
    if mode is not CheckpointUploadMode.NO_UPLOAD:
        return mode
    if isinstance(checkpoint, Checkpoint) and checkpoint.location.local_path is None:
        raise InvalidMetrics(
            f"NO_UPLOAD keeps a checkpoint on this machine, but {checkpoint.path} is not "
            f"here: pass a local directory, or leave checkpoint_upload_mode as it is"
        )
    # If the local directory is the storage, the mode has no meaning.
    return mode if is_mirrored else CheckpointUploadMode.ASYNC
