"""Makes the request of a restore from the experiment's records and the caller's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast import ray_path
from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import TUNER
from holdfast.experiment.start.extension import Extension, Wanted
from holdfast.experiment.start.request import Request
from holdfast.experiment.start.resume_checks import (
    check_limit,
    fixed_differences,
    ignored_arguments,
    ignored_stop,
    settings_differ,
)
from holdfast.experiment.start.untrusted_restore import check_given, check_same, given_anew
from holdfast.experiment.user_objects.tuner_file import BrokenTunerFile, TunerFile, numbered
from holdfast.experiment.worker import wrap
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.trial.config import RunConfig, SyncConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.options import CHDIR
from holdfast.trial.runtime_env import RuntimeEnv, runtime_env_of
from holdfast.trial.tuning import ResumeConfig, TuneConfig

if TYPE_CHECKING:
    from holdfast.experiment.records.opened import OpenedExperiment


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreArguments:
    """The caller's arguments.

    `config`: the RunConfig that says where the experiment is. `script`: the request of a script
    that would also begin the experiment. `tune_config` and `run_config` replace what is pickled
    if that is not `trusted`.
    """

    trainable: Any
    resume: ResumeConfig
    wanted: Wanted
    extend: bool
    runtime_env: Mapping[str, Any] | RuntimeEnv | None
    config: RunConfig | None = None
    script: Request | None = None
    trusted: bool = True
    tune_config: TuneConfig | None = None
    run_config: RunConfig | None = None


def restored_request(opened: OpenedExperiment, given: RestoreArguments) -> Request:
    """The request that began the experiment, with the caller's changes.

    Raises NothingToRestore, BrokenTunerFile, NotTrusted, StorageError, and InvalidConfig for a
    trainable of another name, for what no restore can change, and, unless `extend`, for what
    differs.
    """
    environment = runtime_env_of(given.runtime_env, where="restore(runtime_env=...)")
    spec = opened.prepare()
    file = opened.tuner_file(trusted=given.trusted)
    if given.trainable is None and file.has_ray_names:
        ray_path.activate()
    given = _with_trainable(given, file)
    wanted = given.wanted.only_changes(spec)
    stays: list[str] = []
    if given.script is not None:
        wanted, stays = wanted.without_said(spec)
    _check_changes(opened, spec, wanted, given)
    file, param_space = _needed_objects(spec, file, given)
    kept = _Kept(file, spec)
    before = spec.space_number + (wanted.param_space is not None)
    spaces = {number: kept.load(numbered("param_space", number)) or {} for number in range(before)}
    trainable = given.trainable if given.trainable is not None else file.load_trainable()
    request = Request(
        trainable=trainable,
        param_space=param_space,
        tune=_tune_config(spec, file, kept, wanted),
        run=_run_config(opened, spec, file, kept, wanted, environment),
        resume=given.resume,
        notices=(*filter(None, [opened.notice]), *stays, *kept.notices),
        spaces=spaces,
        extension=None if wanted.is_nothing else Extension(wanted=wanted, spec=spec),
        trusted=given.trusted,
        opened=opened,
    )
    check_same(spec, request)
    check_limit(request.search, wanted.settings)
    ignored = [] if given.wanted.stop is not None else list(ignored_stop(given.config, spec))
    ignored += [] if given.script is None else ignored_arguments(request.tune, given.script.tune)
    found = _same_trainable(opened, spec, request)
    return replace(request, trainable=found, notices=(*request.notices, *ignored))


def _with_trainable(given: RestoreArguments, file: TunerFile) -> RestoreArguments:
    """Find the trainable. A training loop takes its own config out of a new `param_space`."""
    trainable, wanted = given.trainable, given.wanted
    if trainable is None and wanted.param_space is not None:
        trainable = file.load_trainable()
    trainable = None if trainable is None else wrap.find_trainable(trainable)
    if isinstance(trainable, TrainLoop) and wanted.param_space is not None:
        trainable, space = trainable.in_space(wanted.param_space)
        wanted = replace(wanted, param_space=space)
    return replace(given, trainable=trainable, wanted=wanted)


def _check_changes(
    opened: OpenedExperiment, spec: ExperimentSpec, wanted: Wanted, given: RestoreArguments
) -> None:
    """Raises InvalidConfig for what no restore can change, and for an extension without
    `extend`."""
    fixed = list(wanted.impossible(spec))
    fixed += [] if given.script is None else fixed_differences(spec, given.script)
    if fixed or (wanted.is_extension and not given.extend):
        raise settings_differ(opened.path, fixed, wanted.lines(spec))


def _needed_objects(
    spec: ExperimentSpec, file: TunerFile, given: RestoreArguments
) -> tuple[TunerFile, Mapping[str, Any]]:
    """The file with the user's objects, and the search space.

    Raises BrokenTunerFile if a needed object cannot be loaded, NotTrusted.
    """
    space = given.wanted.param_space
    anew: Mapping[str, Any] = {}
    if not given.trusted:
        anew = given_anew(
            spec,
            trainable=given.trainable,
            param_space=space,
            tune_config=given.tune_config,
            run_config=given.run_config,
        )
    if space is None and not spec.space:
        space = {}
    needed = {"trainable": given.trainable, "param_space": space}
    file.require([name for name, value in needed.items() if value is None])
    if not given.trusted:
        check_given(file, spec, anew)
        file = file.with_objects(anew)
    if space is None:
        space = file.load(numbered("param_space", spec.space_number)) or {}
    return file, space


def _same_trainable(opened: OpenedExperiment, spec: ExperimentSpec, request: Request) -> Any:
    """The request's trainable. Raises InvalidConfig if it has another name than the
    experiment's."""
    found = wrap.find_trainable(request.trainable)
    if wrap.name_of(found) != spec.trainable:
        raise InvalidConfig(
            f"the experiment in {opened.path} was begun with the trainable {spec.trainable!r}, "
            f"but restore() was called with {wrap.name_of(found)!r}. Pass one of the same name"
        )
    if isinstance(found, TrainLoop):
        found, _ = found.in_space(request.param_space)
    return found


def _tune_config(spec: ExperimentSpec, file: TunerFile, kept: _Kept, wanted: Wanted) -> TuneConfig:
    return TuneConfig(
        metric=spec.metric,
        mode=spec.mode,
        num_samples=_first(wanted.num_samples, spec.num_samples),
        time_budget_s=_first(wanted.time_budget_s, spec.budget_s),
        search_alg=_NothingMore() if "search_alg" in kept.gone else file.load("search_alg"),
        scheduler=file.load("scheduler"),
        trial_name_creator=kept.load("trial_name_creator"),
        trial_dirname_creator=kept.load("trial_dirname_creator"),
        reuse_actors=wanted.settings.get("reuse_actors", spec.reuse_actors),
        chdir_to_trial_dir=spec.options.get(CHDIR),
    )


def _run_config(
    opened: OpenedExperiment,
    spec: ExperimentSpec,
    file: TunerFile,
    kept: _Kept,
    wanted: Wanted,
    runtime_env: RuntimeEnv,
) -> RunConfig:
    options = spec.options
    log = options.get("log_to_file", False)
    return RunConfig(
        name=opened.place.name,
        stop=_stop_of(spec, file) if wanted.stop is None else wanted.stop,
        callbacks=kept.load("callbacks"),
        progress_reporter=kept.load("progress_reporter"),
        failure_config=wanted.settings.get("failure", spec.failure),
        checkpoint_config=wanted.settings.get("checkpoint", spec.checkpoint),
        sync_config=SyncConfig(**options.get("sync", {})),
        verbose=options.get("verbose"),
        log_to_file=tuple(log) if isinstance(log, list) else log,
        runtime_env=runtime_env,
        tags=options.get("tags"),
    )


def _first(given: Any, known: Any) -> Any:
    return known if given is None else given


class _Kept:
    """The user's objects in tuner.pkl.

    `gone` names objects that were passed to `fit()` and are missing there; `notices` says so.
    """

    def __init__(self, file: TunerFile, spec: ExperimentSpec) -> None:
        self._file = file
        self.notices: list[str] = []
        if file.fault:
            self.gone = [*spec.options.get("objects", ()), *["stop"] * spec.has_stopper]
            file.require([name for name in self.gone if _is_indispensable(name, spec)])
            self.notices.append(
                f"{file.fault}: the experiment resumes with the arguments of the caller"
            )
        else:
            missing = file.load("missing") or []
            self.gone = [name for name in missing if name not in ("trainable", "param_space")]
        self.notices += [_gone_notice(name) for name in self.gone]

    def load(self, name: str) -> Any:
        """An object without influence on decisions; None if it cannot be loaded."""
        try:
            return self._file.load(name)
        except BrokenTunerFile as error:
            self.notices.append(f"{error.fault}: the experiment resumes without it")
            return None


def _is_indispensable(name: str, spec: ExperimentSpec) -> bool:
    """Whether the experiment cannot resume without the object.

    The journal is replayed with its scheduler and means nothing with another one. Without its stop
    function a run may never end.
    """
    has_end = spec.num_samples != -1 or spec.time_budget_s is not None
    return name == "scheduler" or (name == "stop" and not has_end)


def _gone_notice(name: str) -> str:
    if name == "search_alg":
        return f"{name} is not in {TUNER}: the existing trials resume, and no new ones start"
    return f"{name} is not in {TUNER}: the experiment resumes without it"


def _stop_of(spec: ExperimentSpec, file: TunerFile) -> Any:
    if not spec.has_stopper:
        return dict(spec.stop)
    stop = file.load(numbered("stop", spec.stop_number))
    return _never if stop is None else stop


class _NothingMore(Searcher):
    """Replaces a search algorithm that cannot be loaded. It suggests nothing: another algorithm
    would continue the search differently."""

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> str:
        return self.FINISHED


def _never(trial_id: str, result: Mapping[str, Any]) -> bool:
    """Replaces a stop function that cannot be loaded."""
    return False
