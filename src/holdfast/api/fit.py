"""`fit()`: runs a request to its results."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from holdfast import started_by_import
from holdfast.dataclass import dataclass
from holdfast.errors import Remedy
from holdfast.experiment.callbacks.trial_view import Views
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.run import RunResult
from holdfast.experiment.control.watch import RunHandle, watch
from holdfast.experiment.folder.contents import erase_tree, is_written
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import holdfast_command, note_run
from holdfast.experiment.progress.summary import ProgressView, RunFacts
from holdfast.experiment.progress.views import (
    UnfailingView,
    choose_view,
    error_stream,
    in_notebook,
)
from holdfast.experiment.progress.wording import retry_advice
from holdfast.experiment.projector.logger_callbacks import as_asked
from holdfast.experiment.queue.job_experiments import BegunExperiment, JobExperiments
from holdfast.experiment.records.journal import JournalUnreadable, find_beginning, wall_time
from holdfast.experiment.records.opened import OpenedExperiment, locked
from holdfast.experiment.records.place import (
    check_local,
    check_remote,
    claim,
    find_place,
    restore_call,
    split,
)
from holdfast.experiment.records.view import ExperimentView
from holdfast.experiment.start.extension import is_stored, name_for_shell
from holdfast.experiment.start.planning import given_callbacks, plan_run, resumed_by
from holdfast.experiment.start.request import Request
from holdfast.experiment.trackers.supervisor import check_callbacks
from holdfast.experiment.user_objects.stored_objects import UsersValues
from holdfast.experiment.worker import trainables
from holdfast.experiment.worker.objects import remove_abandoned as remove_abandoned_objects
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.forked import children_end_here
from holdfast.results.ranking import goals_text
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.results.short_errors import as_users_error
from holdfast.runtime.errors import LaunchFailed, NoNodes
from holdfast.scheduler.effects import Finish
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import is_leftover, waiting_at_most, write_atomic
from holdfast.syncer.files.threads import ThreadCall
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.lock import ExperimentLock, Locked
from holdfast.text.values import counted
from holdfast.trial.config import ResumeConfig
from holdfast.trial.errors import ExperimentInUse, InvalidConfig, TrialError, TuneError
from holdfast.trial.trial import Status, Trial

_REMOVED_WITHIN_S = 5.0


def fit(request: Request, settings: Settings, host_resources: MachineResources) -> ResultGrid:
    """Run the request to its end. Raises what `Tuner.fit` documents."""
    with waiting_at_most(settings.disk_deadline_s, lambda text: print(text, file=error_stream())):
        request.check()
        given = given_callbacks(request)
        environment = request.environment(host_resources)
        check_callbacks(given, {**os.environ, **environment.env_vars})
        settings = as_asked(settings, given)
        settings = replace(
            settings,
            debug=settings.debug or host_resources.debug,
            echo=host_resources.echoes,
            enforce_memory=_either(settings.enforce_memory, host_resources.enforces_memory),
        )
        started_by_import.check("" if settings.debug else trainables.module_of(request.trainable))
        opened = request.opened or _named(request, settings)
        with none_stays(opened.place.layout):
            check_local(opened.place)
            remove_abandoned_objects()
            with children_end_here():
                return _fit(request, settings, host_resources, opened)


def _either(variable: bool | None, init: bool | None) -> bool | None:
    """Whether one of them asks for it; None if neither was given."""
    return None if variable is None and init is None else bool(variable or init)


def _note(location: Location) -> None:
    """Let the command find the experiment by its name. Tests of the user are not remembered."""
    if location.kind != "given" and "PYTEST_CURRENT_TEST" not in os.environ:
        above, name = split(location.public, None)
        note_run(os.environ, above, name)


def _named(request: Request, settings: Settings) -> OpenedExperiment:
    """The experiment with the name in the RunConfig, or with a new unique name."""
    run = request.run
    name = run.name or unique_name(request.trainable)
    place = find_place(run.storage_path, run.storage_filesystem, name, settings, os.environ)
    return OpenedExperiment(place)


def _fit(
    request: Request,
    settings: Settings,
    host_resources: MachineResources,
    opened: OpenedExperiment,
) -> ResultGrid:
    """Plan and run under the experiment's lock."""
    place, run_config, began_at = opened.place, request.run, wall_time()
    with ExitStack() as stack:
        try:
            has_nodes = host_resources.cluster is not None
            lock = stack.enter_context(locked(place.layout, has_nodes=has_nodes))
        except Locked as error:
            raise ExperimentInUse(str(error), opened.path, error.cause) from error
        view = choose_view(
            run_config.verbose,
            error_stream(),
            os.environ,
            in_notebook(),
            inline=settings.debug,
        )
        check_remote(
            place,
            timeout_s=run_config.sync_config.sync_timeout,
            tell=lambda text: view.message(text, "warning"),
        )
        claim(place, resumes=request.resume is not None)
        _note(place.location)
        if request.record is not None:
            name, content = request.record
            write_atomic(place.layout.root / name, content)
        plan = plan_run(request, settings, host_resources, opened, lock, view)
        return _run(request, plan, view, place.name, began_at)


def _run(
    request: Request, plan: RunPlan, view: ProgressView, name: str, began_at: float
) -> ResultGrid:
    facts = RunFacts(
        name=name,
        path=plan.location.public,
        local_path=str(plan.layout.root),
        total=plan.proposer.total,
        resumes=request.resumes,
        failed_before=_failed(plan.machine.trials) if plan.machine.trials else None,
        command=resumed_by(plan.location, plan.settings, plan.job.trainable),
        again=request.command,
        trainable=name_for_shell(request.trainable),
        is_stored=is_stored(request.trainable),
        is_over=not plan.runs_trials,
        began_at=began_at,
        before_s=plan.machine.active_s,
    )
    run = RunHandle(plan)
    if request.run.progress_reporter is not None:
        view = _reporter_view(request, run, view)
    watch(run, view, facts)
    result = run.result
    if (fault := result.fault) is not None:
        error = _explained(fault, plan)
        if isinstance(fault, LaunchFailed) and error is not fault:
            raise error from fault
        raise as_users_error(error)
    if result.unsaved:
        raise _unsaved(result, plan)
    if result.unwritten:
        raise TuneError(f"the experiment has ended, but {result.unwritten}")
    assert result.outcome is not None
    _check_outcome(request, result.outcome, plan)
    analysis = ExperimentAnalysis.of(
        ExperimentView(machine=plan.machine, location=plan.location, layout=plan.layout),
        resolve_config=UsersValues(
            request.values(plan.spec.space_number), unpickles=request.trusted
        ),
    )
    if plan.machine.spec.goals:
        view.message(_front_text(analysis, plan), "info")
    return ResultGrid(analysis)


def _front_text(analysis: ExperimentAnalysis, plan: RunPlan) -> str:
    """Which trials are best is not one line for a run with several goals."""
    goals, front = plan.machine.spec.goals, analysis.outcome.pareto_front()
    count = counted(len(front), "trial is", "trials are")
    shell = resumed_by(plan.location, plan.settings, plan.job.trainable)
    command = f", or {holdfast_command('best', plan.location.public)}" if shell else ""
    return f"{count} on the Pareto front of {goals_text(goals)}: results.pareto_front(){command}"


def _explained(fault: BaseException, plan: RunPlan) -> BaseException:
    """The user's error behind an error of a run."""
    if isinstance(fault, LaunchFailed) and not isinstance(fault, NoNodes):
        return TuneError(
            f"the trainable cannot be loaded in a worker process: {fault.type_name}: "
            f"{fault.message}\n\n{fault.traceback}"
        )
    if isinstance(fault, TuneError) and fault.remedy is not None:
        return TuneError(_with_remedy(str(fault), fault.remedy, plan))
    return fault


def _with_remedy(text: str, remedy: Remedy | None, plan: RunPlan) -> str:
    """The message with what to do next: a command or a call that can be pasted."""
    text = text.rstrip(".") if remedy is not None else text
    if remedy is Remedy.FIT_AGAIN:
        return f"{text}. Then call fit() again: the name of the run is free for it"
    if remedy is not Remedy.RESUME:
        return text
    command = resumed_by(plan.location, plan.settings, plan.job.trainable)
    if command:
        command += retry_advice(plan.machine.trials.values())
    else:
        command = restore_call(plan.location.public, plan.machine.spec)
    return f"{text}, then resume: {command}"


def _check_outcome(request: Request, outcome: Finish, plan: RunPlan) -> None:
    if outcome.reason == "abort":
        # After a mistake in the settings, a run that holds nothing gives way to the next one.
        free = Remedy.FIT_AGAIN if plan.machine.has_nothing else None
        raise TuneError(_with_remedy(outcome.message, outcome.remedy or free, plan))
    if outcome.reason == "fail_fast" and request.run.failure_config.fail_fast == "raise":
        failed = [t for t in plan.machine.trials.values() if t.status is Status.ERROR]
        assert failed[0].error is not None
        raise TrialError(
            failed[0].trial_id, failed[0].error, str(plan.layout.trial(failed[0].spec))
        )


def _unsaved(result: RunResult, plan: RunPlan) -> TuneError:
    listed, root = "\n  ".join(result.unsaved), plan.layout.root
    kept = f"Everything is kept in {root}. When the storage answers again,"
    if plan.engine is not None:
        kept = (
            f"What is on this machine is kept in {root}. First copy into it what a line says is "
            f"kept on a node (cp -a FOLDER/* {shlex.quote(str(root))}). When the storage answers "
            f"again,"
        )
    return TuneError(
        f"the experiment has ended, but this is not in {plan.location.public}:\n  {listed}\n"
        f"{kept} {_upload_call(plan)} uploads it" + (result.unwritten and f"\n{result.unwritten}")
    )


def _upload_call(plan: RunPlan) -> str:
    call = restore_call(plan.location.public, plan.machine.spec)
    if plan.location.kind == "given":
        return call
    return f"{holdfast_command('doctor', 'sync', plan.location.public)} (in Python: {call})"


def _failed(trials: Mapping[str, Trial]) -> frozenset[tuple[str, int]]:
    failed = (trial for trial in trials.values() if trial.status is Status.ERROR)
    return frozenset((trial.trial_id, trial.attempt) for trial in failed)


def _reporter_view(request: Request, run: RunHandle, lines: ProgressView) -> ProgressView:
    """A view with the user's own progress reporter."""
    from holdfast.experiment.progress.reporters import ProgressReporter, ReporterView

    reporter = request.run.progress_reporter
    if not isinstance(reporter, ProgressReporter):
        raise InvalidConfig(
            f"progress_reporter must be a tune.ProgressReporter, not {reporter!r:.100}"
        )
    with children_end_here():
        reporter.setup(
            start_time=time.time(),
            total_samples=run.plan.proposer.total,
            metric=request.metric,
            mode=request.mode,
        )
    trials = run.machine.trials
    view = ReporterView(
        reporter, Views(run.plan.surroundings), lambda: list(trials.values()), lines
    )
    return UnfailingView(view, error_stream())


def unique_name(trainable: Any) -> str:
    """The trainable's name and the local time, as in Ray; a suffix distinguishes two of one
    second."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    return f"{trainables.name_of(trainable)}_{stamp}_{secrets.token_hex(2)}"


@contextmanager
def none_stays(layout: Layout) -> Iterator[None]:
    """If the block raises before anything is recorded, remove the folder, unless it was there
    before the block or holds files of others. Otherwise each refused call would leave an
    experiment that holds nothing."""
    if layout.root.exists():
        yield
        return
    try:
        yield
    except BaseException:
        # What cannot be removed now, `holdfast rm` removes. The disk may not answer.
        removal = ThreadCall(lambda: _remove(layout))
        if removal.has_ended(_REMOVED_WITHIN_S):
            with suppress(StorageError, OSError, JournalUnreadable):
                removal.result()
        raise


def _remove(layout: Layout) -> None:
    if not layout.root.exists():
        return
    lock = ExperimentLock(layout.lock, deadline_s=0.0)  # no process of the run may still write
    try:
        names = os.listdir(layout.root)
        is_ours = all(is_written(name) or is_leftover(name) for name in names)
        # Somebody has removed what an open journal always has, and may put it back.
        is_robbed = layout.journal.is_dir() and not os.listdir(layout.journal)
        if is_ours and not is_robbed and find_beginning(layout.journal) is None:
            erase_tree(layout.root)
    finally:
        lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCall:
    """The request, with a name. `has_begun`: its experiment is there, to be resumed or, if it is
    finished, to return its results."""

    request: Request
    has_begun: bool

    @property
    def resume_config(self) -> ResumeConfig:
        """A trainer's only trial resumes also after a failure, as in `Trainer.restore`."""
        is_trainer = isinstance(self.request.trainable, TrainLoop)
        return ResumeConfig(errored="resume" if is_trainer else "skip")


def called(job: JobExperiments, request: Request) -> JobCall:
    """Note the call in the job's file. Raises OSError, StorageError, and TuneError for an
    experiment that cannot be read."""
    run = request.run
    call = run.name or f"a run of {trainables.name_of(request.trainable)}"
    number = job.number(call)
    known = job.find(call, number)
    name = run.name or (known.name if known else unique_name(request.trainable))
    named = replace(request, run=replace(run, name=name))
    opened = OpenedExperiment.at(named.run, None, Settings.read(os.environ), os.environ)
    found = _experiment_id(opened)
    if known is not None:
        return JobCall(request=named, has_begun=found not in ("", known.before))
    job.note(BegunExperiment(call=call, number=number, name=name, path=opened.path, before=found))
    return JobCall(request=named, has_begun=False)


def _experiment_id(opened: OpenedExperiment) -> str:
    """The id of the newest run there; "" if there is none."""
    if not opened.exists():
        return ""
    opened.bring()
    return opened.recover().machine.spec.experiment_id
