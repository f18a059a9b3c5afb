"""One attempt at a trial, inside its worker: implements `report()` and `get_checkpoint()`."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.compat import ray_path
from holdfast.experiment.folder.layout import STAGING, free_number
from holdfast.experiment.worker.job import Assignment, Job, Machine
from holdfast.experiment.worker.metrics import plain_metrics, sendable
from holdfast.forked import close_in_children, end_child
from holdfast.runtime import learning, process_control
from holdfast.runtime.errors import WireError
from holdfast.runtime.transport import Transport
from holdfast.runtime.wire import Message
from holdfast.scheduler.effects import Verdict
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.staging import Staged, stage
from holdfast.trial.errors import InvalidConfig, InvalidMetrics, TuneError
from holdfast.trial.trial import (
    CheckpointRecord,
    CheckpointUploadMode,
    checkpoint_dirname,
)


@contextmanager
def fails_nothing() -> Iterator[None]:
    """Print an exception of this block to stderr: the trial has done its work before."""
    try:
        yield
    except Exception:  # the user's code has broken what the clean-up needs: stderr tells them
        tell(f"holdfast: after the end, which it does not change: {traceback.format_exc()}")


def tell(text: str) -> None:
    """Print a line to stderr, which user code may have closed or replaced by anything."""
    with suppress(Exception):
        print(text, file=sys.stderr)


# Longer lines are cut in the terminal; the trial's files hold them whole.
LONGEST_LINE = 10_000
# How long to wait for a thread inside report() when the user's function has ended.
_LAST_REPORT_S = 30.0

_CONTINUE = ["reply", Verdict.CONTINUE.value]


class TrialStopped(SystemExit):
    """Unwinds user code when its trial is over: raised by `report()`, or between two lines of it.

    It is a SystemExit, so that `except Exception` lets it pass and `finally` runs.
    """


class NotInTrial(TuneError):
    """A call works only in a trial's own process, and was made outside of it, or after its end."""


class Session:
    """One attempt at a trial, in the process that runs it."""

    # Validates a checkpoint for `report(validation=...)`; None if there is no function for it.
    validate: Callable[[Checkpoint, Any], tuple[str, dict[str, Any]]] | None = None
    # What the report that is under way asks for.
    _validation: object = False

    def __init__(self, job: Job, assignment: Assignment, transport: Transport) -> None:
        self.job = job
        self.assignment = assignment
        self.iteration = assignment.iteration
        self.stopping = self.is_preempted = False
        # When a preempted attempt ends at the latest, in seconds since 1970.
        self.preempted_until: float | None = None
        # Whether a class trainable must save itself now.
        self.must_save = False
        # Lines of a command that looked like reports and could not be read.
        self.unread = 0
        # The message that the controller gets if the attempt ends now.
        self.ending = "returned"
        self._sending = False
        self._transport = transport
        self._pid = os.getpid()
        # False in a child that user code forked: the connection is its parent's. Asking for the
        # process each time would be a system call in each report.
        self.is_here = True
        close_in_children(self)
        self._reporting = OneAtATime()
        self._is_over = False
        self._thread = threading.get_ident()
        # The metrics of this attempt's newest report.
        self.reported: dict[str, Any] = {}
        self._next_checkpoint = assignment.next_checkpoint
        self._newest = assignment.checkpoint
        self._start: Checkpoint | None = None
        # The checkpoint of the next report that has none of its own.
        self.waiting: Checkpoint | None = None
        self._clock = TrainingClock(time.perf_counter(), assignment.time_total_s)
        # As text: the first path object of a process takes 0.2 ms of a trial's start.
        self.folder = f"{job.experiment_dir}/{assignment.dirname}"

    @property
    def trial_dir(self) -> Path:
        return Path(self.folder)

    @property
    def log_names(self) -> tuple[str, ...]:
        """The files in the trial's directory for stdout and stderr."""
        return self.job.log_names

    @property
    def staging_root(self) -> Path:
        """The folder for staged checkpoints, on the file system of the trial's directory."""
        return self.trial_dir / STAGING

    def stop(self) -> None:
        """Called by the handler of the order to stop: unwind user code, but cut no message."""
        self.stopping = True
        self.ending = "preempted" if self.is_preempted else "stopped"
        if not self._sending:
            raise TrialStopped("the trial was stopped")

    def preempt(self) -> None:
        """Called by the handler of SIGTERM: the machine, or this process, will be taken away.

        The attempt ends with the next report that has a checkpoint, at the latest when the grace
        is over.
        """
        self.is_preempted = True
        grace_s = self.job.preemption_grace_s
        self.preempted_until = time.time() + grace_s
        text = f"holdfast: SIGTERM: this trial has {grace_s:g} s to report a checkpoint\n"
        with suppress(OSError):  # a full disk must not keep the trial from saving
            os.write(2, text.encode())
        timer = threading.Timer(grace_s, os.kill, (self._pid, process_control.STOP))
        timer.daemon = True
        timer.start()

    def report(
        self,
        metrics: object,
        checkpoint: Checkpoint | None = None,
        upload: CheckpointUploadMode | str = CheckpointUploadMode.ASYNC,
        validation: object = False,
    ) -> None:
        """Stage the checkpoint, send the row, wait until it is in the journal. `validation` is for
        ranks.

        The row goes to `TrialActor.on_message` in the controller's process, which answers.
        Threads of user code take turns, because rows have an order and each has its own answer.
        """
        self.check_is_here("report()")
        if validation and self.validate is None:
            raise InvalidConfig(
                f"report(validation={validation!r:.100}) works in the loop of a trainer that has "
                f"a ValidationConfig: TorchTrainer(..., "
                f"validation_config=train.ValidationConfig(fn))"
            )
        with self._reporting:
            self._validation = validation
            self._report(metrics, checkpoint, upload)

    @property
    def next_dirname(self) -> str:
        """The name of the folder that the next checkpoint will have."""
        return checkpoint_dirname(self._next_checkpoint)

    def _report(
        self, metrics: object, checkpoint: Checkpoint | None, upload: CheckpointUploadMode | str
    ) -> None:
        if self._is_over:
            raise NotInTrial("report() was called by a thread after its trial had ended")
        if self.stopping:
            raise TrialStopped("the trial was stopped")
        values = plain_metrics(metrics)
        mode = CheckpointUploadMode.ASYNC
        if upload is not mode:
            # What lies on a node is not in storage yet.
            is_mirrored = self.job.is_mirrored or bool(self.assignment.node_names)
            mode = upload_mode(upload, checkpoint, is_mirrored=is_mirrored)
        before = self._newest
        elapsed = self._clock.lap()
        record = None if checkpoint is None else self.stage(checkpoint, self.iteration + 1, mode)
        message = [
            "report",
            self.assignment.attempt,
            self.iteration + 1,
            values,
            time.time(),
            elapsed,
            self._clock.total_s,
            None if record is None else asdict(record),
        ]
        if imported := learning.end_watch():
            self._send(["imported", *imported])
        try:
            self._send(message)
        except WireError as error:
            raise InvalidMetrics(
                f"the metrics are too large ({error}): store large data in a checkpoint"
            ) from error
        self.iteration += 1
        self.reported = dict(values)
        verdict = self._answer()
        self.must_save = verdict in (Verdict.PAUSE, Verdict.SAVE)
        if verdict not in (Verdict.CONTINUE, Verdict.SAVE):
            self.stopping = True
            raise TrialStopped("the trial was stopped")
        if self._newest != before and self._leaves_once_saved():
            self.stopping = True
            self.ending = "preempted"
            raise TrialStopped("the trial was preempted and has reported a checkpoint")

    def _leaves_once_saved(self) -> bool:
        """True if a preempted attempt ends with this report, provided it has a checkpoint."""
        return self.is_preempted

    def save(self, checkpoint: Checkpoint) -> None:
        """Send a checkpoint of the last reported iteration, without a row."""
        with self._reporting:
            record = self.stage(checkpoint, self.iteration)
            self._send(["saved", self.assignment.attempt, asdict(record)])

    def finish(self) -> None:
        """Called when the user's function has ended: later reports of its threads are refused.

        A report that a thread has begun gets its answer first, so that its row precedes the end.
        After an order to stop there is no such wait: the order ends that report, too.
        """
        if not self.stopping:
            self._reporting.wait(_LAST_REPORT_S)
        self._is_over = True
        if self.unread:
            self._send(["unread", self.unread])

    def end_forked(self) -> None:
        """End a child that user code forked and that has come back from it."""
        if not self.is_here:
            end_child()

    def close_in_child(self) -> None:
        """Called in a child that user code forked."""
        self.is_here = False

    def check_is_here(self, caller: str) -> None:
        """Raises NotInTrial, naming `caller`, in a child that user code forked."""
        if not self.is_here:
            raise NotInTrial(
                f"{caller} works only in the trial's own process, not in one that it started: "
                f"send it the values, for instance through a multiprocessing.Queue"
            )

    def stage(
        self,
        checkpoint: Checkpoint,
        iteration: int,
        upload: CheckpointUploadMode = CheckpointUploadMode.ASYNC,
    ) -> CheckpointRecord:
        """Copy or rename the checkpoint's directory into the trial's.

        Raises InvalidMetrics if it is not a Checkpoint, StorageError if it cannot be copied.
        """
        if not isinstance(checkpoint, Checkpoint):
            raise InvalidMetrics(
                f"checkpoint must be a Checkpoint, not {type(checkpoint).__name__}: use "
                f"Checkpoint.from_directory(path)"
            )
        with checkpoint.as_directory() as source:
            return self._take(source, iteration, upload)

    def _take(self, source: str, iteration: int, upload: CheckpointUploadMode) -> CheckpointRecord:
        index = self.own_number(self._next_checkpoint)
        staged = stage(
            source,
            self.trial_dir / checkpoint_dirname(index),
            staging_root=self.staging_root,
        )
        self._next_checkpoint = index + 1
        self._newest = checkpoint_dirname(index)
        return self._record(index, iteration, staged, upload)

    def own_number(self, least: int) -> int:
        """The number of the next checkpoint. Where the script has a folder of the name of `least`,
        it is far above, and a line says so."""
        index = free_number(self.folder, least)
        if index != least:
            print(
                f"holdfast: {checkpoint_dirname(least)} in the trial's folder is the script's own "
                f"and stays as it is, on this machine only. Holdfast's checkpoints continue at "
                f"{checkpoint_dirname(index)}",
                file=sys.stderr,
            )
        return index

    def _record(
        self, index: int, iteration: int, staged: Staged, upload: CheckpointUploadMode
    ) -> CheckpointRecord:
        return CheckpointRecord(
            index=index,
            iteration=iteration,
            attempt=self.assignment.attempt,
            files=staged.files,
            size_bytes=staged.bytes,
            time_total_s=self._clock.total_s,
            upload=upload,
        )

    def ask_machines(self) -> list[Machine]:
        """The machines of this trial's run, with what is free there. Raises TuneError."""
        with self._reporting:
            self._send(["machines"])
            (found,) = self._receive("machines")
        return [Machine(*one) for one in found]

    @property
    def is_sending(self) -> bool:
        """True if a signal interrupted this thread in the middle of a message."""
        return self._sending and threading.get_ident() == self._thread

    def send_log(self, stream: str, lines: str) -> None:
        """Send lines that user code printed to the controller."""
        if self.is_here:
            with suppress(OSError):  # the controller is gone; the file has the lines
                self._send(["log", stream, sendable(lines)])

    def staging_directory(self) -> Path:
        """A new empty directory on the trial's disk, which `report` renames instead of copying."""
        root = self.staging_root
        root.mkdir(parents=True, exist_ok=True)
        directory = root / f"user-{self.assignment.attempt}-{time.monotonic_ns():x}"
        directory.mkdir()
        return directory

    def begin_from(self, start: Checkpoint | None) -> None:
        """Set the checkpoint to resume from until this trial has its own."""
        self._start = start

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that this attempt reported, or else the one it resumes from."""
        newest = self._newest
        return self._start if newest is None else Checkpoint(str(self.trial_dir / newest))

    def pass_over(self, index: int) -> None:
        """Give later checkpoints a number above `index`."""
        self._next_checkpoint = max(self._next_checkpoint, index + 1)

    def _send(self, message: Message) -> None:
        """Send a message whole: in the trial's thread, an order to stop takes effect after it."""
        if threading.get_ident() != self._thread:
            self._transport.send(message)
            return
        was_stopping = self.stopping
        self._sending = True
        try:
            self._transport.send(message)
        finally:
            self._sending = False
        if self.stopping and not was_stopping:
            raise TrialStopped("the trial was stopped")

    def _receive(self, order: str) -> list[Any]:
        """The arguments of the next message, which must be this order."""
        match self._transport.receive():
            case [str(word), *arguments] if word == order:
                return arguments
            case None:
                os._exit(71)
            case message:
                raise TuneError(f"expected the order {order!r}, got {message!r:.100}")

    def _answer(self) -> Verdict:
        return self._verdict(self._transport.receive())

    def _verdict(self, message: Message | None) -> Verdict:
        if message == _CONTINUE:
            return Verdict.CONTINUE
        if message is None:
            # The controller is gone. On Linux the kernel ends this process; elsewhere this does.
            os._exit(71)
        match message:
            case ["reply", str(verdict)]:
                return Verdict(verdict)
            case ["refused", str(text)]:
                raise TuneError(text)
            case _:
                raise TuneError(f"unexpected answer to a report: {message!r:.100}")


_current: list[Session] = []
_told: set[str] = set()
_log = logging.getLogger("holdfast")


def enter(session: Session) -> None:
    """Make `session` the session of user code in this process."""
    _current[:] = [session]


def leave() -> None:
    _current.clear()


def running() -> Session | None:
    """The session of this process; None outside a trial."""
    return _current[0] if _current else None


def here(caller: str) -> Session | None:
    """As `current`; but a script for Ray, which calls its function without Tune as well, gets a
    warning and None outside a trial."""
    if _current or not ray_path.is_active():
        return current(caller)
    if caller not in _told:
        _told.add(caller)
        _log.warning("%s does nothing outside a trial", caller)
    return None


def current(caller: str) -> Session:
    """The session of this process. Raises NotInTrial, naming `caller`, outside a trial."""
    if not _current:
        raise NotInTrial(
            f"{caller} works only inside a trial, in the function or class given to "
            f"Tuner(...) and called by fit(). To debug it in this process, call "
            f"holdfast.init(local_mode=True) before fit()"
        )
    session = _current[0]
    session.check_is_here(caller)
    return session


# -- the parts of `report()`: training time, turns of threads, and upload modes -------------------


class TrainingClock:
    """Measures training time by a monotonic clock, so that setting the system's clock has no
    effect."""

    # No dataclass: each worker would make its `__init__` anew.
    def __init__(self, last: float, total_s: float) -> None:
        self.last = last
        self.total_s = total_s

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
        self._lock = threading.RLock()
        self._is_held = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._is_held:
            self._lock.release()
            raise TuneError(
                "report() was called by a signal handler while the same thread was reporting: "
                "set a flag in the handler, and report in the loop"
            )
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        self._lock.release()

    def wait(self, within_s: float) -> None:
        """Wait until the lock is free, at most `within_s`."""
        if self._lock.acquire(timeout=within_s):
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
