"""`fit()`: from a request to results."""

from __future__ import annotations

import os
import secrets
import sys
import time
from dataclasses import replace
from typing import Any

from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.trial_view import Views
from holdfast.experiment.control.debug_mode import InlineLauncher
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.control.run import Run
from holdfast.experiment.control.watch import watch
from holdfast.experiment.folder.containment import check_enclosed, check_enclosed_trials
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.progress.notebook_view import in_notebook
from holdfast.experiment.progress.reporter_view import ReporterView
from holdfast.experiment.progress.reporters import ProgressReporter
from holdfast.experiment.progress.result_lines import ResultLines
from holdfast.experiment.progress.summary import RunFacts
from holdfast.experiment.progress.views import ProgressView, UnfailingView, choose_view
from holdfast.experiment.projector.logger_callbacks import as_asked, is_written_anyway
from holdfast.experiment.records.place import (
    ExperimentPlace,
    bring,
    check_free,
    check_local,
    check_nothing_hidden,
    check_remote,
    claim,
    find_place,
    left_elsewhere,
)
from holdfast.experiment.records.recovery import recover
from holdfast.experiment.results.analysis import ExperimentAnalysis
from holdfast.experiment.results.read_experiment import ReadExperiment
from holdfast.experiment.results.result_grid import ResultGrid
from holdfast.experiment.results.trial_count import planned
from holdfast.experiment.start.extension import check_enough, extended, told
from holdfast.experiment.start.fit_errors import check_outcome, check_resources, explained, unsaved
from holdfast.experiment.start.request import Request
from holdfast.experiment.start.spec_builder import job_of, spec_of
from holdfast.experiment.start.untrusted_restore import check_recorded
from holdfast.experiment.trackers.job import TrackerJob
from holdfast.experiment.trackers.supervisor import check_callbacks, jobs_of
from holdfast.experiment.trackers.tracker import Tracker
from holdfast.experiment.user_objects.placeholders import UsersValues
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.experiment.user_objects.tuner_file import write as write_tuner_file
from holdfast.experiment.worker import wrap
from holdfast.experiment.worker.objects import sweep as sweep_objects
from holdfast.experiment.worker.runtime_env import check_given_again
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.forked import children_end_here
from holdfast.runtime.process_control import boot_id
from holdfast.scheduler.events import Begun, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler, scheduler_of
from holdfast.scheduler.resuming import goes_on
from holdfast.syncer.files.disk_deadline import waiting_at_most
from holdfast.syncer.journal.journal import segments
from holdfast.syncer.uploader.lock import ExperimentLock, Locked
from holdfast.trial.errors import (
    ExperimentInUse,
    InvalidConfig,
)
from holdfast.trial.trial import Status
from holdfast.trial.tuning import ResumeType


def fit(request: Request, settings: Settings, machinery: MachineResources) -> ResultGrid:
    """Run the request to its end. Raises what `Tuner.fit` documents."""
    with waiting_at_most(settings.disk_deadline_s, lambda text: print(text, file=sys.stderr)):
        return _fit(request, settings, machinery)


def _fit(request: Request, settings: Settings, machinery: MachineResources) -> ResultGrid:
    request.check()
    run_config = request.run
    given = _given(request)
    environment = request.environment(machinery)
    check_callbacks(given, {**os.environ, **environment.env_vars})
    settings = as_asked(settings, given)
    name = run_config.name or _unique_name(request.trainable)
    place = find_place(
        run_config.storage_path, run_config.storage_filesystem, name, settings, os.environ
    )
    check_local(place)
    sweep_objects()
    with children_end_here():
        return _fit_in(place, request, settings, machinery, name)


def _fit_in(
    place: ExperimentPlace,
    request: Request,
    settings: Settings,
    machinery: MachineResources,
    name: str,
) -> ResultGrid:
    """The same under the lock of the experiment's folder."""
    run_config = request.run
    try:
        lock = ExperimentLock(place.layout.lock, is_mirror=place.layout.mirror_of.exists())
    except Locked as error:
        raise ExperimentInUse(str(error), place.location.public, error.cause) from error
    try:
        check_enclosed(place.layout)
        view = choose_view(
            run_config.verbose,
            sys.stderr,
            os.environ,
            in_notebook(),
            inline=machinery.debug or settings.debug,
        )
        check_remote(
            place,
            timeout_s=run_config.sync_config.sync_timeout,
            tell=lambda text: view.message(text, "warning"),
        )
        claim(place)
        plan = _plan(request, settings, machinery, place, lock, name, view)
        return _run(request, plan, view, name)
    finally:
        lock.release()


def _run(request: Request, plan: RunPlan, view: ProgressView, name: str) -> ResultGrid:
    facts = RunFacts(
        name=name,
        path=plan.location.public,
        local_path=str(plan.layout.root),
        total=plan.proposer.total,
        resumes=request.resumes,
    )
    run = Run(plan)
    if request.run.progress_reporter is not None:
        view = _reporter_view(request, run, view)
    inline = plan.launcher if isinstance(plan.launcher, InlineLauncher) else None
    watch(run, view, facts, inline=inline)
    if run.fault is not None:
        raise explained(run.fault, plan) from run.fault
    if run.unsaved:
        raise unsaved(run, plan)
    assert run.outcome is not None
    check_outcome(request, run.outcome, plan)
    return ResultGrid(
        ExperimentAnalysis.of(
            ReadExperiment(machine=plan.machine, location=plan.location, layout=plan.layout),
            resolve_config=UsersValues(
                request.values(plan.spec.space_number), unpickles=request.trusted
            ),
        )
    )


def _plan(
    request: Request,
    settings: Settings,
    machinery: MachineResources,
    place: ExperimentPlace,
    lock: ExperimentLock,
    name: str,
    view: ProgressView,
) -> RunPlan:
    resources = wrap.resources_of(request.trainable)
    check_resources(request.trainable, resources, machinery)
    debug = machinery.debug or settings.debug
    environment = request.environment(machinery)
    policy = _policy(request)
    if request.resume is None:
        check_free(place, lambda text: view.message(text, "info"))
        spec = spec_of(request, settings, resources, environment)
        policy.begun(spec)  # which checks its settings, before anything is written
        first: Begun | Resumed = Begun(
            spec=spec, capacity=dict(machinery.total), boot_id=boot_id()
        )
        machine = Machine(policy)
        # A segment of its own, also where a run that died at once left one without a beginning.
        fresh = True
        begins = (segments(place.layout.journal) or [-1])[-1] + 1
        _write_objects(request, place, travels=not debug)
    else:
        bring(place)
        recovered = recover(place.layout, policy, to_go_on=True)
        check_enclosed_trials(place.layout, recovered.machine)
        if recovered.machine.finished:
            check_nothing_hidden(place, recovered)
        for notice in recovered.notices:
            view.message(notice, "loss")
        machine, begins, fresh = recovered.machine, recovered.begins, False
        if notice := left_elsewhere(place, machine, request.run.sync_config):
            view.message(notice, "warning")
        spec = machine.spec
        first = Resumed(
            epoch=machine.epoch + 1,
            capacity=dict(machinery.total),
            unfinished=ResumeType(request.resume.unfinished),
            errored=ResumeType(request.resume.errored),
            finished=ResumeType(request.resume.finished),
            boot_id=boot_id(),
            strict=settings.strict_metric,
            resources=request.resources,
            spec=extended(
                request.extension, machine, strict=settings.strict_metric, resources=resources
            ),
            rules=2,
        )
        if not request.trusted and goes_on(machine, first):
            check_recorded(machine)
        spec = first.spec or spec
    proposer = Proposer(
        spec,
        request.param_space,
        request.search,
        resources,
        Naming(
            trial=request.tune.trial_name_creator, directory=request.tune.trial_dirname_creator
        ),
        root=place.layout.root,
        made=[trial.spec for trial in machine.trials.values()],
        values=request.values(spec.space_number),
        trusted=request.trusted,
    )
    if first.spec is not None:
        first = replace(first, spec=planned(first.spec, proposer.total))
    if isinstance(first, Resumed) and first.spec is not None and request.extension is not None:
        wanted = request.extension.wanted
        check_enough(machine, wanted, proposer.total)
        wanted.keep(TunerFile(place.layout.tuner), first.spec)
        view.message(told(machine, first, wanted, proposer.total), "info")
    if isinstance(first, Resumed) and not goes_on(machine, first):
        view.message(_was_finished(name, machine), "info")
    for notice in (*request.notices, *proposer.notices):
        view.message(notice, "warning")
    tracker_job = TrackerJob(
        root=str(place.layout.root),
        experiment_id=spec.experiment_id,
        trainable=spec.trainable,
        experiment_path=place.location.path,
        begins=begins,
        samples=request.tune.num_samples,
        total_samples=proposer.total,
    )
    plan = RunPlan(
        settings=settings,
        machinery=machinery,
        layout=place.layout,
        location=place.location,
        remote=place.remote,
        job=job_of(request, settings, place, spec, name, environment, debug=debug),
        machine=machine,
        first=first,
        begins=begins,
        fresh=fresh,
        proposer=proposer,
        lock=lock,
        sync=request.run.sync_config,
        stopper=request.stopper,
        callbacks=_callbacks(request, view),
        tracker_jobs=jobs_of(_given(request), tracker_job),
        callback_setup={
            "stop": request.run.stop,
            "num_samples": request.tune.num_samples,
            "total_num_samples": proposer.total,
        },
        launcher=InlineLauncher() if debug else None,
        environment=environment,
    )
    if request.resume is not None and plan.runs_trials:
        check_given_again(spec.options, environment)
    return plan


def _was_finished(name: str, machine: Machine) -> str:
    why = ""
    if machine.ending is not None and machine.ending.reason in ("stopper", "budget"):
        how = "restore(..., extend=True) with more of it, or another stop, goes on"
        why = f" ({machine.ending.message}; {how})"
    failed = sum(trial.status is Status.ERROR for trial in machine.trials.values())
    if failed and not machine.spec.options.get("trainer"):
        trials = f"{failed} trial{'s' * (failed > 1)}"
        why += f" ({trials} failed; restore(..., resume_errored=True) tries again)"
    return f"{name} was finished{why}: its results are returned as they are"


def _write_objects(request: Request, place: ExperimentPlace, *, travels: bool) -> None:
    fields, layout = request.objects(travels=travels), place.layout
    if isinstance(request.trainable, TrainLoop) and "trainable" in fields:
        write_tuner_file(layout.trainer, {"trainable": fields.pop("trainable")})
    write_tuner_file(layout.tuner, fields)


def _policy(request: Request) -> TrialScheduler:
    """The scheduler of a request. Raises InvalidConfig for what is none, or cannot work with the
    trainable."""
    policy = scheduler_of(request.tune.scheduler)
    is_class = isinstance(request.trainable, type)
    if policy.needs_checkpoints and is_class and not wrap.can_save(request.trainable):
        raise InvalidConfig(
            f"{type(policy).__name__} lets trials go on from checkpoints, and "
            f"{request.trainable.__qualname__} makes none: define save_checkpoint() and "
            f"load_checkpoint() in it"
        )
    return policy


def _given(request: Request) -> tuple[Callback, ...]:
    """Raises InvalidConfig for what is no callback."""
    given = tuple(request.run.callbacks or ())
    for callback in given:
        if not isinstance(callback, Callback):
            raise InvalidConfig(f"callbacks must be tune.Callback objects, not {callback!r:.100}")
    return given


def _callbacks(request: Request, view: ProgressView) -> tuple[Callback, ...]:
    """Those that are called here."""
    given = tuple(
        one
        for one in _given(request)
        if not isinstance(one, Tracker) and not is_written_anyway(one)
    )
    verbose = request.run.verbose or 0
    return (*given, ResultLines(verbose, view.message)) if verbose > 1 else given


def _reporter_view(request: Request, run: Run, lines: ProgressView) -> ProgressView:
    """The user's own progress reporter instead of ours."""
    reporter = request.run.progress_reporter
    if not isinstance(reporter, ProgressReporter):
        raise InvalidConfig(
            f"progress_reporter must be a tune.ProgressReporter, not {reporter!r:.100}"
        )
    with children_end_here():
        reporter.setup(
            start_time=time.time(),
            total_samples=run.plan.proposer.total,
            metric=request.tune.metric,
            mode=request.tune.mode,
        )
    trials = run.machine.trials
    view = ReporterView(
        reporter, Views(run.plan.surroundings), lambda: list(trials.values()), lines
    )
    return UnfailingView(view, sys.stderr)


def _unique_name(trainable: Any) -> str:
    """As Ray names them, the trainable and the local time; a suffix parts two of a second."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    return f"{wrap.name_of(trainable)}_{stamp}_{secrets.token_hex(2)}"
