"""The main function of a worker process: runs the user's function or class in its main thread."""

from __future__ import annotations

import inspect
import io
import math
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.experiment.folder.layout import CHECKPOINT_PREFIX, ON_NODE, STAGING
from holdfast.experiment.user_objects.pickling import users_config
from holdfast.experiment.worker import session as sessions
from holdfast.experiment.worker.context import older_arguments
from holdfast.experiment.worker.failures import FolderUnusable, describe
from holdfast.experiment.worker.job import Assignment, Job
from holdfast.experiment.worker.objects import collecting_references, import_packages, use_copies
from holdfast.experiment.worker.output import OutputCapture
from holdfast.experiment.worker.script import adopt, refuse_in_trials
from holdfast.experiment.worker.session import Session, TrialStopped, fails_nothing, tell
from holdfast.experiment.worker.trainables import Trainable, check_has_run, exports_of, start_of
from holdfast.forked import children_end_here
from holdfast.plain_numbers import is_number, plain_number
from holdfast.runtime import interpreter, process_control
from holdfast.runtime.fleet.delivery import OBJECTS
from holdfast.runtime.fleet.facts import NODE_DIR, node_ip
from holdfast.runtime.process_control import Title
from holdfast.runtime.transport import Transport
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.reading import BeingRead, retire
from holdfast.syncer.files.tree import is_ours
from holdfast.text.errors import excerpt
from holdfast.trees import try_to_delete
from holdfast.trial.errors import Failure, InvalidMetrics
from holdfast.trial.metrics import UNNAMED, lookup
from holdfast.trial.trial import checkpoint_number
from holdfast.trial.values import from_plain


def prepare_directory(session: Session) -> None:
    """Create the trial's directory, and remove unrecorded files of an attempt that died.

    Raises FolderUnusable.
    """
    try:
        _prepare(session)
    except OSError as error:
        why = f"{error.filename or session.folder}: {error.strerror or error}"
        raise FolderUnusable(f"cannot write the trial's folder {why}") from error


def _prepare(session: Session) -> None:
    try:
        os.mkdir(session.folder)
    except FileNotFoundError:
        os.makedirs(session.folder, exist_ok=True)
    except FileExistsError:
        pass
    else:
        return
    if session.assignment.local_rank:
        return  # the first rank on this machine does it
    directory = session.trial_dir
    _clear_staging(directory / STAGING, session.staging_root)
    for found in directory.glob(f"{CHECKPOINT_PREFIX}*"):
        number = checkpoint_number(found.name)
        if number is None or not found.is_dir():
            continue  # the user's own: they may use any name
        if number >= session.assignment.next_checkpoint and is_ours(found):
            _clear_away(found, number, session)


def _clear_staging(folder: Path, own: Path) -> None:
    """Remove staged files, except those that other ranks of this attempt have already put
    there."""
    with suppress(FileNotFoundError):
        for found in list(folder.iterdir()):
            if found != own:
                try_to_delete(found)


def _clear_away(unrecorded: Path, number: int, session: Session) -> None:
    try:
        aside = retire(unrecorded)
    except BeingRead:
        # A reader has it open: new files under this name would mix with those that it has read.
        session.pass_over(number)
    else:
        if aside is not None:
            try_to_delete(aside)  # the name is free; the next run removes it


# Ray's variable for the directory in which the script was started.
ORIGIN = "TUNE_ORIG_WORKING_DIR"
# How long after an order was swallowed it is repeated.
_REPEAT_S = 0.05


class TrialHost:
    """The entry of every worker process: `prepare` in the warm parent, `run` in each child."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._place = ("", "")
        # The experiment's name in titles; empty in the script's own process, which keeps its name.
        self._titled = ""

    def prepare(self, payload: bytes) -> None:
        """`payload` is a pickled `Script`, and behind it a pickled `Job`: its modules may read the
        script's arguments when they are imported."""
        import cloudpickle

        refuse_in_trials()
        shared = io.BytesIO(payload)
        pickle.load(shared).enter(os.environ.get(NODE_DIR, ""))
        if folder := os.environ.get(NODE_DIR):
            use_copies(os.path.join(folder, OBJECTS))
        with collecting_references() as references:
            job = cloudpickle.load(shared)
        adopt(job.trainable, job.param_space)
        if job.group is not None:
            job.trainable.import_modules()
        import_packages(references)
        self.take(job)
        self._titled = os.path.basename(job.experiment_dir)
        Title("warm parent", self._titled, "warm").show()
        # Nearly every trial has one CPU, so the limits are usually set already. Saves 0.2 ms of
        # its start.
        _release_limits(1)

    def take(self, job: Job) -> None:
        self._job = _at_home(job, os.environ)
        self._place = (socket.gethostname(), node_ip())

    def run(self, channel: Transport) -> None:
        """Run a trial; with reuse_actors, one after the other until the order to exit."""
        assert self._job is not None
        # It is this worker's own: a fit() in a trial runs its trials here, in its own folders.
        os.environ.pop(NODE_DIR, None)
        trainable: Trainable | None = None
        continues = True
        while continues and (message := channel.receive()) is not None and message[0] == "run":
            assignment = Assignment(*message[1])
            if self._titled:
                _title_of(assignment, self._titled).show()
            trainable, ended_well = self.host(channel, assignment, trainable)
            continues = ended_well and self._job.reuse_actors
        if trainable is not None:
            with children_end_here():
                trainable.cleanup()

    def host(
        self, channel: Transport, assignment: Assignment, kept: Trainable | None
    ) -> tuple[Trainable | None, bool]:
        """Run one attempt. Returns the class trainable, which a later trial may reuse, and whether
        this process may run another attempt."""
        assert self._job is not None
        session = _session_kind(self._job)(self._job, assignment, channel)
        attempt = assignment.attempt
        try:
            prepare_directory(session)
            with trial_environment(session) as capture:
                channel.send(["started", attempt, os.getpid(), *self._place])
                sessions.enter(session)
                try:
                    with stoppable(session), children_end_here():
                        kept = _call(self._job.trainable, session, kept)
                finally:
                    sessions.leave()
                    session.finish()
                    capture.flush()
        except TrialStopped:
            channel.send([session.ending, attempt])
            kept = None
        except NeedsNewProcess:
            channel.send(["unfit", attempt])
            return kept, False
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not self._job.capture:
                # The trial runs in the script's own thread: Ctrl-C ends the experiment.
                raise
            if isinstance(error, SystemExit) and not error.code:
                # sys.exit() without a code is a success, as in any script.
                channel.send([_ending_by_exit(session, error), attempt])
                return None, not session.is_preempted
            if _is_trial_pruned(error):
                ending = "pruned" if session.ending == "returned" else session.ending
                channel.send([ending, attempt])
                return None, not session.is_preempted
            # The controller decides whether there is another attempt.
            failure = describe(error, session)
            _print_failure(session, failure)
            channel.send(["raised", attempt, asdict(failure)])
            return None, False
        else:
            channel.send([session.ending, attempt])
        # A worker that is being preempted gets no other trial.
        return kept, not session.is_preempted


def _session_kind(job: Job) -> type[Session]:
    if job.group is None:
        return Session
    from holdfast.experiment.worker.rank_session import RankSession  # few trials have ranks

    return RankSession


def _title_of(assignment: Assignment, experiment: str) -> Title:
    """The part of a trial's ID that tells it from others of its run fits into a short name."""
    trial_id, rank = assignment.trial_id, assignment.rank
    of_rank = f" rank {rank}" if assignment.world_size > 1 else ""
    return Title(f"trial {trial_id}{of_rank}", experiment, trial_id.rpartition("_")[2])


def _at_home(job: Job, environ: Mapping[str, str]) -> Job:
    """The job with the folders of this node, where the controller's do not exist."""
    folder = environ.get(NODE_DIR)
    if not folder:
        return job
    return replace(job, experiment_dir=os.path.join(folder, ON_NODE), working_dir=os.getcwd())


def _ending_by_exit(session: Session, error: SystemExit) -> str:
    """After SIGTERM, a library's own subclass of SystemExit, as Lightning has one, is its reaction
    to the signal and does not mean that the work is done."""
    is_librarys = session.is_preempted and type(error) is not SystemExit
    return "preempted" if is_librarys else "returned"


def _is_trial_pruned(error: BaseException) -> bool:
    """True for Optuna's TrialPruned, by which a function stops its own trial early. Optuna
    need not be installed here."""
    # Not `kind.__name__`: a user's metaclass may raise anything.
    names = (
        (type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__name__"))
        for kind in type(error).__mro__
    )
    return any(
        name == "TrialPruned" and str(module).partition(".")[0] == "optuna"
        for module, name in names
    )


def _call(trainable: Any, session: Session, kept: Trainable | None) -> Trainable | None:
    config = config_of(session)
    session.begin_from(start_of(trainable))
    if isinstance(trainable, type):
        used = drive(trainable, config, session, kept)
        return used if session.job.reuse_actors else None
    with older_arguments(trainable, session) as older:
        _report_answer(session, trainable(config, **older))
    return None


def _report_answer(session: Session, answer: Any) -> None:
    """Report the values that a function returns or yields: as Ray does, and as Optuna does where
    the run has a metric."""
    if answer is None:  # nearly always, and `isinstance` of an abstract class is 50 times as slow
        return
    if not inspect.isgenerator(answer):
        check_has_run(answer)
        _report_value(session, answer, is_final=True)
        return
    with closing(answer):
        for value in answer:
            session.end_forked()
            _report_value(session, value)


def _report_value(session: Session, value: Any, *, is_final: bool = False) -> None:
    goals = session.job.goals
    if isinstance(value, Mapping):
        if is_final and value.get("status") == "fail":  # Hyperopt's STATUS_FAIL: no value counts
            value = {**value, **dict.fromkeys(goals, math.nan)}
        if value:
            session.report(value)
    elif (found := _numbers_of(value, goals)) is not None:
        final = {**session.reported, **found} if is_final and goals else found
        # A value that the last report had is no further iteration.
        if not (is_final and goals and _has_all(session.reported, found)):
            session.report(final)
    elif value is not None and goals and not session.iteration:
        raise InvalidMetrics(
            f"the trainable has reported nothing, and returned {excerpt(value)}: return a number "
            f"for each of {', '.join(goals)}, or a dict of metrics"
        )
    elif value is not None:
        tell(
            f"the {type(value).__name__} that the trainable returned is not reported: return or "
            f"yield a dict of metrics or a number, or store it in a checkpoint"
        )


def _numbers_of(value: Any, goals: Sequence[str]) -> dict[str, Any] | None:
    """The values of the goals that a function returns, as Optuna's do: a number, or one for each
    of several goals; None if they are none."""
    if not goals:
        number = plain_number(value)
        return {UNNAMED: number} if isinstance(number, (int, float)) else None
    numbers = list(map(plain_number, value if isinstance(value, (tuple, list)) else [value]))
    fit = len(numbers) == len(goals) and all(map(is_number, numbers))
    return dict(zip(goals, numbers, strict=True)) if fit else None


def _has_all(reported: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    pairs = [(lookup(reported, name), value) for name, value in found.items()]
    return all(one == other or (one != one and other != other) for one, other in pairs)


def config_of(session: Session) -> dict[str, Any]:
    """The trial's config with the user's own objects in place."""
    return users_config(from_plain(session.assignment.config), session.job.param_space)


def _print_failure(session: Session, failure: Failure) -> None:
    """Write the failure to the trial's stderr, where readers of the log look for it."""
    if session.job.capture:
        with (
            suppress(OSError),  # the controller gets it anyway
            open(session.trial_dir / session.log_names[1], "a", errors="replace") as log,
        ):
            log.write(failure.traceback)


@contextmanager
def trial_environment(session: Session) -> Iterator[OutputCapture]:
    """Set the working directory, environment and output of the trial."""
    job, assignment = session.job, session.assignment
    capture = OutputCapture(session)
    if job.capture:
        interpreter.widen_loaded_pools(_release_limits(assignment.cpus))
        if assignment.sets_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(assignment.gpus)
        interpreter.reseed_libraries()
        capture.open()
    if job.chdir:
        os.chdir(session.folder)
    try:
        with interpreter.changed(os.environ, {ORIGIN: job.working_dir}):
            yield capture
    finally:
        if job.chdir:
            with suppress(OSError):  # it may be gone by now
                os.chdir(job.working_dir)


@lru_cache(maxsize=1)
def _release_limits(cpus: float) -> int:
    """Set the limits of thread pools in the environment of this process for this many CPUs, unless
    they are those already. Returns the number of threads for loaded libraries."""
    return interpreter.release_limits(os.environ, cpus)


HOST = TrialHost()


@contextmanager
def stoppable(session: Session) -> Iterator[None]:
    """Let an order to stop unwind user code between two lines; outside user code the order waits.

    SIGTERM announces such an order.
    """
    if not session.job.capture:
        yield
        return

    orders = {process_control.STOP: session.stop, signal.SIGTERM: session.preempt}

    def obey(signum: int, _frame: FrameType | None) -> None:
        process_control.set_own_handler(signum, _do_nothing)
        orders[signum]()

    for signum in orders:
        process_control.set_own_handler(signum, obey)
    try:
        with _repeating(
            session, lambda: process_control.set_own_handler(process_control.STOP, obey)
        ):
            yield
    finally:
        for signum in orders:
            process_control.set_own_handler(signum, _do_nothing)


@contextmanager
def _repeating(session: Session, listen: Callable[[], None]) -> Iterator[None]:
    """Repeat an order to stop that Python swallowed, and do not print the traceback.

    Python passes an exception in a finalizer, in the callback of a weak reference or in a hook of
    fork() to `sys.unraisablehook`, and the code below continues. A DataLoader of torch with
    workers spends much time in both.
    """
    repeats: list[threading.Timer] = []
    shown = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, TrialStopped) or not session.is_here:
            shown(lost)
            return
        listen()
        # Repeat it later, from a thread: raised here, it would be swallowed again.
        repeat = threading.Timer(_REPEAT_S, os.kill, (os.getpid(), process_control.STOP))
        repeat.daemon = True
        repeats.append(repeat)
        repeat.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:  # otherwise user code has installed its own
            sys.unraisablehook = shown
        for repeat in repeats:  # none may reach the next trial of this process
            repeat.cancel()
            repeat.join()


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Replaces SIG_IGN, which children would inherit."""


class NeedsNewProcess(Exception):
    """The class trainable cannot be used for another config: a new process is needed."""


def drive(
    kind: Callable[[dict[str, Any]], Trainable],
    config: dict[str, Any],
    session: Session,
    kept: Trainable | None,
) -> Trainable:
    """Step a class trainable until it is done or stopped."""
    if kept is not None:
        if not kept.reset(config):
            raise NeedsNewProcess
        trainable = kept
    else:
        trainable = kind(config)
    try:
        _resume(trainable, session)
        if _steps(trainable, session) and (formats := exports_of(type(trainable))):
            trainable.export_model(formats)
    except BaseException:
        with fails_nothing():
            trainable.cleanup()
        raise
    if not session.job.reuse_actors:
        with fails_nothing():
            trainable.cleanup()
    return trainable


def _resume(trainable: Trainable, session: Session) -> None:
    checkpoint = session.checkpoint()
    if checkpoint is not None:
        trainable.begin_at(session.assignment.iteration, session.assignment.time_total_s)
        trainable.restore(checkpoint)
        # The journal decides how far a checkpoint of another trial is.
        trainable.begin_at(session.assignment.iteration, session.assignment.time_total_s)


def _steps(trainable: Trainable, session: Session) -> bool:
    """Step until the end. A stop takes effect between two steps, so a checkpoint may follow it.

    Returns whether the trial is done, and will not continue later.
    """
    saved_at = session.assignment.iteration
    done = False
    while not done:
        result = trainable.train()
        session.end_forked()
        done = bool(result.get("done"))
        wanted = _wants_checkpoint(session, trainable, result, done=done)
        if wanted:
            saved_at = trainable.iteration
        try:
            session.report(
                _metrics_of(result),
                _save(trainable, session) if wanted else None,
            )
        except TrialStopped:
            wanted = session.job.checkpoint_at_end or session.must_save
            if wanted and saved_at < trainable.iteration:
                session.save(_save(trainable, session))
            return session.ending == "returned" and not session.must_save
        if session.must_save and saved_at < trainable.iteration:
            session.save(_save(trainable, session))
            saved_at = trainable.iteration
    return True


# Counted by the session itself, over all attempts.
_COUNTED = frozenset({"training_iteration", "time_this_iter_s", "time_total_s"})


def _metrics_of(result: dict[str, Any]) -> dict[str, Any]:
    """The user's own metrics; every row has a `done`, which only a true one changes."""
    left_out = _COUNTED if result.get("done") else _COUNTED | {"done"}
    return {key: value for key, value in result.items() if key not in left_out}


def _wants_checkpoint(
    session: Session, trainable: Trainable, result: dict[str, Any], *, done: bool
) -> bool:
    frequency = session.job.checkpoint_frequency
    if frequency and trainable.iteration % frequency == 0:
        return True
    if session.is_preempted and type(trainable).save_checkpoint is not Trainable.save_checkpoint:
        return True
    return bool(result.get("should_checkpoint")) or (done and session.job.checkpoint_at_end)


def _save(trainable: Trainable, session: Session) -> Checkpoint:
    return trainable.save(str(session.staging_directory()))
