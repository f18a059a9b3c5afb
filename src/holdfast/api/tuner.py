"""`Tuner`, as users write it, and its text for a terminal and a notebook."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from holdfast import started_by_import
from holdfast.compat import ray_path
from holdfast.compat.advice import checked, explained_attribute, explains_call, explains_keywords
from holdfast.experiment.folder.settings import Settings
from holdfast.results.short_errors import short_errors
from holdfast.trial.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    StopCriteria,
    TuneConfig,
)
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.resources import PlacementGroupFactory

# The rest is imported by the methods: most of it is what a run consists of, and a script that only
# reads or reports has no use for it.
if TYPE_CHECKING:
    from holdfast.experiment.queue.job_experiments import JobExperiments
    from holdfast.experiment.records.view import ExperimentView
    from holdfast.experiment.start.request import Request
    from holdfast.results.result_grid import ResultGrid
    from holdfast.scheduler.events import ExperimentSpec


_PARAMS = 50
_CHARS = 100


def tuner_text(request: Request, state: str, environ: Mapping[str, str]) -> str:
    """The lines of `repr(tuner)`."""
    facts = [*_space(request), *_facts(request, state, environ)]
    lines = [f"  {name}: {value}" for name, value in facts]
    return "\n".join([f"Tuner({_trainable(request)})", *lines])


def tuner_html(request: Request, state: str, environ: Mapping[str, str]) -> str:
    """The same for a notebook's cell."""
    from holdfast.text.tables import html_facts, html_heading, html_table

    space = _space(request)
    parts = [
        html_heading(f"Tuner({_trainable(request)})"),
        html_table(["parameter", "domain"], space) if space else "",
        html_facts(_facts(request, state, environ)),
    ]
    return "\n".join(filter(None, parts))


def _trainable(request: Request) -> str:
    from holdfast.experiment.worker.trainables import name_of

    return name_of(request.trainable)


def _space(request: Request) -> list[tuple[str, str]]:
    """Each parameter with its domain or value."""
    from holdfast.text.values import format_value
    from holdfast.trial.search_space.description import describe
    from holdfast.trial.values import key_name

    parts = describe(request.param_space)
    shown = [(key_name(tuple(part["path"])), part["text"]) for part in parts[:_PARAMS]]
    more = len(parts) - len(shown)
    rest = [(f"... {more} more", "")] if more else []
    return [(name, format_value(text, _CHARS)) for name, text in [*shown, *rest]]


def _facts(request: Request, state: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in _known(request, state, environ) if text]


def _known(request: Request, state: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    tune = request.tune
    yield "metric", " ".join(filter(None, [request.metric, request.mode and f"({request.mode})"]))
    endless = "without a limit" if tune.num_samples == -1 else str(tune.num_samples)
    yield "num_samples", endless
    yield "confirm", str(tune.confirm or "")
    yield "max_concurrent_trials", str(request.max_concurrent or "")
    yield "time_budget_s", str(tune.time_budget_s or "")
    yield "search_alg", request.search_name
    yield "scheduler", request.scheduler_name
    yield "stop", _stop(request.run.stop)
    yield "tags", ", ".join(f"{name}={value}" for name, value in (request.run.tags or {}).items())
    yield "storage", _storage(request, environ)
    yield "state", state


def _stop(stop: Any) -> str:
    if stop is None:
        return ""
    if isinstance(stop, Mapping):
        from holdfast.text.values import format_value

        return ", ".join(f"{name}={format_value(bound)}" for name, bound in stop.items())
    return getattr(stop, "__name__", type(stop).__name__)


def _storage(request: Request, environ: Mapping[str, str]) -> str:
    """Where the experiment is or will be, without credentials."""
    from holdfast.syncer.errors import StorageError
    from holdfast.syncer.stores.location import Location

    if request.opened is not None:
        return request.opened.path
    run = request.run
    try:
        place = Location.resolve(run.storage_path, run.storage_filesystem, environ)
    except StorageError as error:  # which fit() raises
        return str(error)
    return (place if run.name is None else place.child(run.name)).public


@explains_keywords
class Tuner:
    """Runs many trials of a trainable and keeps everything they report.

    `trainable`: a function of a config dict, a `Trainable` subclass, a registered name, or a
    trainer, whose `train_loop_config` and `scaling_config` are then parameters, and whose
    `run_config` is used where none is given.
    `param_space`: the config, with domains and grids in place of values.
    `tune_config`: the goal, the search and the scheduler. `run_config`: storage, failures, output.

    Raises InvalidConfig for invalid settings.
    """

    @short_errors
    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        from holdfast.experiment.start.request import Request
        from holdfast.experiment.start.short_names import with_algorithms
        from holdfast.experiment.worker import trainables
        from holdfast.experiment.worker.train_loop import TrainLoop

        for name, value, kind in (
            ("tune_config", tune_config, TuneConfig),
            ("run_config", run_config, RunConfig),
            ("param_space", param_space, Mapping),
        ):
            if value is not None and not isinstance(value, kind):
                raise InvalidConfig(f"{name} must be a {kind.__name__}, not {value!r:.100}")
        found, space = trainables.find_trainable(trainable), dict(param_space or {})
        if isinstance(found, TrainLoop):
            found, space = found.in_space(space)
            found, run_config = found.saving_by(run_config)
        tune, choice = with_algorithms(checked(tune_config or TuneConfig()), space)
        self._request = Request(
            trainable=found,
            param_space=space,
            tune=tune,
            choice=choice,
            run=checked(run_config or getattr(trainable, "run_config", None) or RunConfig()),
        )
        self._request.check()
        self._results: ResultGrid | None = None
        self._earlier: ExperimentView | None = None
        self._needs_newest = False

    @short_errors
    @explains_call("fit")
    def fit(
        self,
        *,
        resume: str = "never",
        extend: bool = False,
        resume_config: ResumeConfig | None = None,
        trusted: bool = True,
    ) -> ResultGrid:
        """Run every trial to its end and return their results.

        `resume="auto"` resumes the experiment of the RunConfig's name, finished or not, and starts
        a new one if there is none; with "must" it raises NothingToRestore instead. Settings that
        differ from the experiment's raise InvalidConfig; with `extend=True` those that a restore
        can change are applied, as in `restore(..., extend=True)`. `resume_config` says which of
        its trials resume. Without it, failed trials run again if the trainable's code has changed,
        and all if none of a finished experiment has reported anything. With `trusted=False`
        nothing from the experiment's folder is unpickled: this script's objects are used instead.

        A failed trial does not raise, unless FailureConfig(fail_fast="raise"). After Ctrl-C,
        `fit` stops the trials, keeps everything and raises KeyboardInterrupt.

        Raises StorageError before the first trial if the storage cannot be written,
        ExperimentExists for the name of an unfinished experiment, ExperimentInUse while another
        process or thread runs it, TuneError for what makes the whole experiment impossible.
        """
        if self._earlier is not None:
            return self.earlier_results(needs_newest=self._needs_newest)
        started_by_import.check()
        from holdfast.api.fit import fit
        from holdfast.experiment.control.machine_resources import host_resources
        from holdfast.experiment.queue.job_experiments import JobExperiments
        from holdfast.experiment.start.restoring import check_resume

        request = self._request
        if request.run.logging_config is not None:
            import logging

            logging.getLogger("holdfast").setLevel(request.run.logging_config.level)
        if check_resume(resume, extend=extend, resume_config=resume_config):
            resumed = checked(resume_config) or ResumeConfig()
            self._resume_named(resume, extend, resumed, trusted=trusted)
            request = self._request = replace(
                self._request, resumes=True, retries=resume_config is None
            )
        if (job := JobExperiments.of(os.environ)) is not None:
            request = self._of_job(job)
        settings = Settings.read(os.environ)
        self._results = fit(request, settings, host_resources(settings.cluster))
        return self._results

    def _of_job(self, job: JobExperiments) -> Request:
        """The request of a script that a job of the queue runs: if the script has made this call
        before, it continues that experiment."""
        from holdfast.api.fit import called

        opened = self._request.opened
        if opened is not None:  # the script itself says which experiment it resumes
            job.note_resumed(opened.place.name, opened.path)
            return self._request
        call = called(job, self._request)
        if not call.has_begun:
            return call.request
        self._request = call.request
        self._resume_named("auto", extend=False, resume_config=call.resume_config, trusted=True)
        return self._request

    def _resume_named(
        self, resume: str, extend: bool, resume_config: ResumeConfig, *, trusted: bool
    ) -> None:
        """Replace the request by one that resumes the experiment named in the RunConfig, if there
        is one."""
        if self._is_restored:
            return
        from holdfast.experiment.records.opened import OpenedExperiment
        from holdfast.experiment.start.restoring import changes_in, restored_request

        script, run = self._request, self._request.run
        if run.name is None:
            raise InvalidConfig(
                f"fit(resume={resume!r}) finds the experiment by its name: give "
                f"RunConfig(name=...)"
            )
        opened = OpenedExperiment.at(
            run, None, Settings.read(os.environ), os.environ, follows=trusted
        )
        self._request = replace(script, opened=opened)
        if resume == "auto" and not opened.exists():
            return
        try:
            restored = restored_request(
                opened,
                trainable=script.trainable,
                resume=resume_config,
                changes=changes_in(script),
                extend=extend,
                runtime_env=run.runtime_env,
                script=script,
                trusted=trusted,
                tune_config=None if trusted else script.tune,
                run_config=None if trusted else script.run,
            )
        except InvalidConfig:
            if opened.ended_without_results():
                return  # a new run follows it, as without `resume`
            raise
        self._request = restored.with_run_settings_of(script)

    @property
    def _is_restored(self) -> bool:
        return self._request.resume is not None

    @property
    def trainable(self) -> Any:
        """What the trials run; for an earlier run, its name."""
        if self._earlier is not None:
            return self._earlier.machine.spec.trainable
        return self._request.trainable

    @property
    def earlier(self) -> ExperimentView | None:
        """The run that this tuner only reads, since a later run followed it under its name."""
        return self._earlier

    def earlier_results(self, *, needs_newest: bool = False) -> ResultGrid:
        """The results that `fit()` returns for an earlier run. `needs_newest`: arguments of the
        restore apply only to the newest run.

        Raises InvalidConfig if trials would have to resume.
        """
        assert self._earlier is not None
        assert self._results is not None
        if needs_newest or not self._earlier.machine.finished:
            raise InvalidConfig(
                f"run {self._earlier.run} in {self._earlier.location.public} was followed by "
                f"another and cannot be resumed: get_results() reads it. To run it again, use "
                f"another name=..."
            )
        return self._results

    def is_as_said(self, spec: ExperimentSpec) -> bool:
        """True if `fit(resume="auto")` would change and refuse nothing in an experiment with this
        spec."""
        from holdfast.experiment.start.restoring import is_as_said

        return is_as_said(spec, self._request)

    def with_record(self, name: str, content: bytes, command: str) -> Self:
        """This tuner; `fit()` also writes a file that describes the experiment to its folder. The
        shell's `command` makes the same call."""
        self._request = replace(self._request, record=(name, content), command=command)
        return self

    def with_trainable(
        self, trainable: Any, resources: PlacementGroupFactory | None = None
    ) -> Self:
        """This tuner, with another trainable of the same name and other resources."""
        self._request = replace(self._request, trainable=trainable, resources=resources)
        return self

    @short_errors
    def get_results(self) -> ResultGrid:
        """The results that `fit` returned; after `restore`, those that exist already.

        Configs hold the values of `param_space`. A value that a search or a `sample_from` function
        made and that is not plain data is a placeholder; its `load()` unpickles it.
        Raises TuneError before `fit`.
        """
        if self._results is not None:
            return self._results
        opened = self._request.opened
        if opened is None or not self._is_restored:
            raise TuneError("there are no results yet: call fit() first")
        from holdfast.experiment.user_objects.stored_objects import UsersValues
        from holdfast.results.reading import read_tree, warn_of
        from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid

        # The restore has fetched what storage had; the tree may have more.
        read = read_tree(opened.place.layout, opened.place.location)
        warn_of(read.location, read.notices)
        found = self._request.values(read.machine.spec.space_number)
        values = UsersValues(found, unpickles=False)
        return ResultGrid(ExperimentAnalysis.of(read, resolve_config=values))

    if not TYPE_CHECKING:  # a type checker should report the attribute itself

        def __getattr__(self, name: str) -> Any:
            return explained_attribute(self, name)

    def __repr__(self) -> str:
        if self._earlier is not None:
            return f"Tuner({self.trainable})\n  state: {self._state}"
        return tuner_text(self._request, self._state, os.environ)

    def _repr_html_(self) -> str:
        if self._earlier is not None:
            return self.get_results()._repr_html_()
        return tuner_html(self._request, self._state, os.environ)

    @property
    def _state(self) -> str:
        if self._earlier is not None:
            path = self._earlier.location.public
            return f"run {self._earlier.run} in {path}, which another followed"
        if self._results is not None:
            return f"fit() returned {len(self._results)} results"
        return "restored: fit() resumes it" if self._is_restored else "not started: call fit()"

    @classmethod
    @short_errors
    def can_restore(
        cls, path: str | os.PathLike[str] | RunConfig, storage_filesystem: Any = None
    ) -> bool:
        """True if there is an experiment at `path` that `restore` could resume.

        `path` may be the RunConfig, with a name, that the experiment began with.

        Raises StorageError if the storage does not answer.
        """
        from holdfast.experiment.records.opened import OpenedExperiment
        from holdfast.experiment.records.recovery import NothingToRestore

        settings = Settings.read(os.environ)
        try:
            opened = OpenedExperiment.at(path, storage_filesystem, settings, os.environ)
        except NothingToRestore:
            return False
        return opened.exists()

    @classmethod
    @short_errors
    def restore(
        cls,
        path: str | os.PathLike[str] | RunConfig,
        trainable: Any = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        *,
        resume_config: ResumeConfig | None = None,
        restore_artifacts: bool | None = None,
        run: int | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        num_samples: int | None = None,
        stop: StopCriteria = None,
        time_budget_s: Any = None,
        max_concurrent_trials: int | None = None,
        failure_config: FailureConfig | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        extend: bool = False,
        trusted: bool = True,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> Self:
        """A Tuner whose `fit()` resumes the experiment at `path`, or where a RunConfig says.

        The path of this machine's tree of an experiment in another storage means the one there; a
        copy of the tree resumes by itself.

        Finished trials stay finished. Unfinished ones resume from their newest checkpoint, unless
        `resume_unfinished` is False. Failed ones stay failed, resume from their checkpoint
        (`resume_errored`) or start from the beginning (`restart_errored`). Without a `trainable`
        the one in tuner.pkl is used. A `param_space` with the same keys replaces the objects in
        it. `restore_artifacts` overrides the run's SyncConfig: whether trials find here what they
        wrote on another machine. `runtime_env` replaces the RunConfig's, of which the experiment
        keeps only names.

        Of several runs under one name the newest is restored. With `run=N` (from 1) the tuner
        reads run N instead: `get_results()` returns its results, and so does `fit()` if it is
        finished. A run that another followed cannot resume: `fit()` raises InvalidConfig.

        With `extend=True` the experiment continues with another `num_samples`, `stop`,
        `time_budget_s` or `param_space`. `fit()` prints what changes. All results stay, and
        existing trials keep their configs. Finished ones resume, if the new `stop` lets them, with
        `resume_config=ResumeConfig(finished="resume")`. Later restores keep the change.

        `max_concurrent_trials` (0 for no limit), `failure_config` and `checkpoint_config` apply
        from now on, without `extend`. Another `checkpoint_score_attribute` is refused: existing
        checkpoints were not scored by it. A RunConfig given as `path` also sets the latter two,
        `callbacks`, `progress_reporter`, `verbose` and `sync_config`, each where it is not the
        default.

        With `trusted=False` nothing from the experiment's folder is unpickled, now or in `fit()`.
        Pass the `trainable`, the `param_space` if it is not plain data, and, for other objects of
        yours, `tune_config` and `run_config` as the experiment began with; only what is pickled is
        taken from these two. Callbacks start without their states, and a class whose
        `save_checkpoint` returns a dict cannot resume.

        Raises NothingToRestore, BrokenTunerFile, NotTrusted, which says what to pass, and
        InvalidConfig for a trainable of another name, or, without `extend`, for what differs.
        """
        from holdfast.experiment.records.opened import OpenedExperiment
        from holdfast.experiment.start.extension import Changes
        from holdfast.experiment.start.restoring import (
            check_arguments,
            restored_request,
            settings_of,
        )
        from holdfast.experiment.start.short_names import with_algorithms

        check_arguments(trusted=trusted, tune_config=tune_config, run_config=run_config)
        path = checked(path)
        settings = Settings.read(os.environ)
        opened = OpenedExperiment.at(
            path, storage_filesystem, settings, os.environ, follows=trusted
        )
        tuner = cls.__new__(cls)
        tuner._results, tuner._earlier = None, None
        if run is not None:
            from holdfast.results.reading import read_records, warn_of
            from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid

            read = read_records(opened.place.location, run)
            warn_of(read.location, read.notices)
            if read.is_followed:
                tuner._earlier, tuner._results = read, ResultGrid(ExperimentAnalysis.of(read))
                tuner._needs_newest = bool(
                    resume_errored or restart_errored or resume_config or extend
                )
                return tuner
        config = path if isinstance(path, RunConfig) else None
        request = restored_request(
            opened,
            trainable=trainable,
            resume=checked(resume_config)
            or ResumeConfig(
                unfinished="resume" if resume_unfinished else "skip",
                errored=_errored(resume_errored, restart_errored),
            ),
            changes=Changes(
                num_samples=num_samples,
                stop=stop,
                param_space=param_space,
                time_budget_s=time_budget_s,
                settings=settings_of(
                    path,
                    max_concurrent_trials,
                    checked(failure_config),
                    checked(checkpoint_config),
                ),
                is_sure=extend,
            ),
            extend=extend,
            runtime_env=runtime_env or (config.runtime_env if config else None),
            config=config,
            trusted=trusted,
            tune_config=tune_config and with_algorithms(checked(tune_config), param_space)[0],
            run_config=checked(run_config),
        )
        if config is not None:
            request = request.with_run_settings_in(config)
        if restore_artifacts is not None:
            request = request.with_artifacts(brought=restore_artifacts)
        tuner._request = request
        return tuner


def _errored(resume: bool, restart: bool) -> str:
    if resume and restart and not ray_path.is_active():
        raise InvalidConfig(
            "resume_errored resumes from checkpoints, restart_errored starts from the beginning: "
            "choose one"
        )
    return "resume" if resume else "restart" if restart else "skip"
