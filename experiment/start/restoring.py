"""Makes the request of a restore from the experiment's records and the caller's arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.compat import ray_path
from holdfast.described import Described, is_holdfast_class, state_of
from holdfast.errors import Remedy
from holdfast.experiment.folder.layout import TUNER, log_names_of
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.start.extension import SETTINGS, Changes, difference, stop_text
from holdfast.experiment.start.request import Request
from holdfast.experiment.user_objects.tuner_file import (
    BrokenTunerFile,
    NotTrusted,
    TunerFile,
    numbered,
)
from holdfast.experiment.worker import trainables
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.names import listed
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.schema import to_fields
from holdfast.trial.config import (
    CHDIR,
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    RuntimeEnv,
    SyncConfig,
    TuneConfig,
    runtime_env_of,
)
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.stoppers import text_of

if TYPE_CHECKING:
    from holdfast.experiment.records.opened import OpenedExperiment
    from holdfast.experiment.start.request import Request


_OF_TUNE = ("search_alg", "scheduler", "trial_name_creator", "trial_dirname_creator")
_OF_RUN = ("stop", "callbacks", "progress_reporter")
_ADVICE = (
    "with trusted=False nothing is unpickled. Pass {0} to restore() as the experiment began with; "
    "trusted=True runs code from the experiment's folder"
)
_BY = {
    "trainable": "the trainable",
    "param_space": "param_space=",
    **dict.fromkeys(_OF_TUNE, "tune_config="),
    **dict.fromkeys(_OF_RUN, "run_config="),
}
_SHOWN = 3


def check_arguments(
    *, trusted: bool, tune_config: TuneConfig | None, run_config: RunConfig | None
) -> None:
    """Raises InvalidConfig."""
    given = {"tune_config": (tune_config, TuneConfig), "run_config": (run_config, RunConfig)}
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise InvalidConfig(f"{name} must be a {kind.__name__}, not {value!r:.100}")
        if value is not None and trusted:
            raise InvalidConfig(
                f"{name} is for restore(..., trusted=False), where it replaces what would have to "
                f"be unpickled. A trusted restore loads that from the experiment"
            )


def given_anew(
    spec: ExperimentSpec,
    *,
    trainable: Any,
    param_space: Mapping[str, Any] | None,
    tune_config: TuneConfig | None,
    run_config: RunConfig | None,
) -> dict[str, Any]:
    """The arguments that replace pickled objects, by the names of fields in tuner.pkl."""
    given: dict[str, Any] = {}
    if trainable is not None:
        given["trainable"] = trainable
    if param_space is not None:
        given[numbered("param_space", spec.space_number)] = param_space
    if tune_config is not None:
        given |= {name: getattr(tune_config, name) for name in _OF_TUNE}
    if run_config is not None:
        given |= {name: getattr(run_config, name) for name in _OF_RUN}
        given[numbered("stop", spec.stop_number)] = given.pop("stop")
    return given


def check_given(file: TunerFile, spec: ExperimentSpec, given: Mapping[str, Any]) -> None:
    """Raises NotTrusted, naming everything that the caller must also pass."""
    stop = numbered("stop", spec.stop_number)
    used = [
        name
        for name in file.untrusted(given)
        if not name.startswith("stop") or (name == stop and spec.has_stopper)
    ]
    if not used:
        return
    newest = numbered("param_space", spec.space_number)
    if any(_base(name) == "param_space" and name != newest for name in used):
        raise NotTrusted(
            f"the param_space from before an extension is pickled in {file.path}",
            "only a trusted restore can resume trials that were made from it",
        )
    names = ", ".join(map(_base, used))
    by = " and ".join(dict.fromkeys(_BY.get(_base(name), name) for name in used))
    verb = "is" if len(used) == 1 else "are"
    raise NotTrusted(f"{names} in {file.path} {verb} pickled", _ADVICE.format(by))


def check_same(spec: ExperimentSpec, request: Request) -> None:
    """Raises InvalidConfig for an object of another class than the earlier one."""
    if request.trusted or request.changes is not None:
        return
    stop = request.run.stop
    for name, was, now in (
        ("scheduler", spec.scheduler, request.scheduler_name),
        ("search_alg", spec.options.get("search", request.search_name), request.search_name),
        ("stop", stop_text(spec), text_of(stop)),
    ):
        if was != now:
            raise InvalidConfig(
                f"{name} must be the experiment's own: {difference(name, was or None, now)}"
            )


def _base(name: str) -> str:
    return name.partition("-")[0]


def check_recorded(machine: Machine) -> None:
    """Raises NotTrusted if the journal has pickled values that a trial would get."""
    found = [name for name, trial in machine.trials.items() if _is_pickled(to_fields(trial))]
    if not found and not _is_pickled(snapshot(machine)):
        return
    shown = f"of {listed(found, _SHOWN)} " if found else ""
    raise NotTrusted(
        f"configs {shown}hold values that are pickled in the journal",
        "a search or a sample_from function made them. Only a trusted restore can resume: "
        "trusted=True runs code from the experiment's folder",
    )


def _is_pickled(tree: Any) -> bool:
    """True if a value is carried as a pickle, anywhere in a tree of plain values."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part.get("__holdfast__") == "opaque":
                return True
            waiting += part.values()
        elif isinstance(part, (list, tuple)):
            waiting += part
    return False


# As `fit(resume=...)` says it. LOCAL and REMOTE have named a place, and an experiment there.
_HOW: Final = {
    "AUTO": "auto",
    "LOCAL": "must",
    "REMOTE": "must",
    "MUST": "must",
    "NEVER": "never",
}
_ERRORED: Final = {
    "ERRORED": ResumeConfig(errored="resume"),
    "RESTART_ERRORED": ResumeConfig(errored="restart"),
    "ERRORED_ONLY": ResumeConfig(errored="resume", unfinished="skip"),
    "RESTART_ERRORED_ONLY": ResumeConfig(errored="restart", unfinished="skip"),
}


class Resuming(NamedTuple):
    """`how` is "never", "auto" or "must"; `config` says which trials resume, None by default."""

    how: str
    config: ResumeConfig | None = None


def resuming(resume: Any, config: ResumeConfig | None = None) -> Resuming:
    """What `tune.run(resume=resume, resume_config=config)` means.

    A `config` alone resumes, as in Ray. Raises InvalidConfig.
    """
    if config is not None and not isinstance(config, ResumeConfig):
        raise InvalidConfig(f"resume_config must be a ResumeConfig, not {config!r:.100}")
    if resume is None or resume is False:
        return Resuming("never") if config is None else Resuming("auto", config)
    if resume is True:
        return Resuming("auto", config)
    how, which = _words_in(resume)
    if which is not None and config is not None:
        raise InvalidConfig(
            f"resume={resume!r} and resume_config both say which trials resume: pass one of them"
        )
    return Resuming(how, which or config)


def _words_in(resume: object) -> tuple[str, ResumeConfig | None]:
    words = resume.upper().split("+") if isinstance(resume, str) else [""]
    if words[0] in _ERRORED:
        words.insert(0, "MUST")
    if words[0] == "PROMPT":
        raise InvalidConfig(
            f"resume={resume!r}: holdfast asks nothing. Write resume='AUTO', which resumes the "
            f"experiment if there is one"
        )
    if words[0] not in _HOW or any(word not in _ERRORED for word in words[1:]) or len(words) > 2:
        raise InvalidConfig(
            f"resume must be True, False or one of {', '.join(_HOW)}, alone or followed by "
            f"+{', +'.join(_ERRORED)}; not {resume!r:.100}"
        )
    return _HOW[words[0]], _ERRORED[words[1]] if len(words) > 1 else None


_RESUMES = ("never", "auto", "must")
# Arguments of schedulers and searches that are compared elsewhere, or may change.
_COMPARED_APART = frozenset({"metric", "mode", "max_concurrent"})


def check_resume(resume: object, *, extend: bool, resume_config: ResumeConfig | None) -> bool:
    """True if `fit` resumes an existing experiment. Raises InvalidConfig."""
    if resume not in _RESUMES:
        raise InvalidConfig(
            f"resume must be one of {_RESUMES}, not {resume!r:.100}{_resume_meant(resume)}"
        )
    if resume == "never" and (extend or resume_config is not None):
        raise InvalidConfig(
            "extend and resume_config say how fit() resumes an existing experiment: pass "
            "resume='auto' or 'must' with them"
        )
    return resume != "never"


def _resume_meant(given: object) -> str:
    """What to write for the values that `tune.run(resume=...)` of Ray takes."""
    try:
        how, config = resuming(given)
    except InvalidConfig:
        return ""
    if how == "never":
        return ". Use resume='never', the default"
    if config is None:
        return f". Use resume={how!r}"
    which = f", unfinished={config.unfinished!r}" if config.unfinished != "resume" else ""
    told = f"tune.ResumeConfig(errored={config.errored!r}{which})"
    return f". Use fit(resume={how!r}, resume_config={told})"


def settings_in(script: Request) -> dict[str, Any]:
    """The settings in a script that a restore can change."""
    return {
        "max_concurrent": script.max_concurrent,
        "reuse_actors": script.reuses_actors,
        "failure": script.run.failure_config,
        "checkpoint": script.run.checkpoint_config,
        "confirm": script.tune.confirm,
        **({"metric": script.metric} if script.metric else {}),
        **({"mode": script.mode} if script.mode else {}),
    }


def changes_in(script: Request) -> Changes:
    """All that a script says and a restore compares with the experiment."""
    budget, stop = script.tune.budget_seconds, script.run.stop
    return Changes(
        num_samples=script.tune.num_samples,
        stop={} if stop is None else stop,
        param_space=script.param_space,
        time_budget_s=math.inf if budget is None else budget,
        fits_budget=None if budget is None else script.tune.budget is not None,
        settings=settings_in(script),
    )


def is_as_said(spec: ExperimentSpec, script: Request) -> bool:
    """True if a restore by this script would change and refuse nothing."""
    changes, _ = changes_in(script).of(spec).without_said()
    return changes.is_nothing and not any(fixed_differences(spec, script))


def settings_of(
    path: object,
    max_concurrent_trials: int | None,
    failure_config: FailureConfig | None,
    checkpoint_config: CheckpointConfig | None,
) -> dict[str, Any]:
    """The settings that the arguments of a restore change, or a RunConfig given as its path.

    Raises InvalidConfig.
    """
    TuneConfig(max_concurrent_trials=max_concurrent_trials)
    settings: dict[str, Any] = {}
    if max_concurrent_trials is not None:
        settings["max_concurrent"] = max_concurrent_trials or None
    run, plain = path if isinstance(path, RunConfig) else RunConfig(), RunConfig()
    for field, given in (("failure", failure_config), ("checkpoint", checkpoint_config)):
        name = SETTINGS[field]
        anew: dict[str, Any] = {} if given is None else {name: given}
        said = getattr(replace(run, **anew), name)
        if anew or said != getattr(plain, name):
            settings[field] = said
    return settings


def check_limit(search: object, settings: Mapping[str, Any]) -> None:
    """Raises InvalidConfig if the restored search algorithm has a lower limit itself."""
    own = getattr(search, "max_concurrent", None) if isinstance(search, Searcher) else None
    limit = settings.get("max_concurrent", 0)
    if own is not None and (limit is None or limit > own):
        raise InvalidConfig(
            f"{type(search).__name__}(max_concurrent={own}) is the search algorithm's own limit, "
            f"which a restore cannot change: max_concurrent_trials can be {own} at most, not "
            f"{limit or 'without limit'}"
        )


def ignored_stop(config: RunConfig | None, spec: ExperimentSpec) -> Iterator[str]:
    """A notice of another `stop` in the RunConfig that only says where the experiment is."""
    stop = config.stop if config is not None else None
    if stop is not None and text_of(stop) != stop_text(spec):
        yield (
            f"restore() keeps stop={stop_text(spec)} and ignores the {text_of(stop)} of the "
            f"RunConfig. To change it: restore(..., stop=..., extend=True)"
        )


def ignored_arguments(kept: TuneConfig, script: TuneConfig) -> Iterator[str]:
    """A notice where a script makes the same scheduler or search with other arguments."""
    # Other search algorithms have learned since they were made, so they differ anyway.
    names = ["scheduler", *["search_alg"] * isinstance(script.search_alg, BasicVariantGenerator)]
    for name in names:
        begun_with = getattr(kept, name)
        if differs := differing_arguments(begun_with, getattr(script, name)):
            yield (
                f"{name}: {', '.join(differs)} differs from what the experiment was begun with. "
                f"A restore cannot change it: the earlier {type(begun_with).__name__} is used. "
                f"To use the new one, start a new run under another name=..."
            )


def differing_arguments(kept: object, script: object) -> list[str]:
    """The names of the arguments in which the two differ.

    Empty for objects of two classes, and for classes that are not holdfast's: their attributes
    may hold anything.
    """
    if type(kept) is not type(script) or not is_holdfast_class(type(kept)):
        return []
    before, after = _parts(kept), _parts(script)
    shared = [name for name in before if name in after and name not in _COMPARED_APART]
    return [name.lstrip("_") for name in shared if not _alike(before[name], after[name])]


def _alike(one: Any, other: Any) -> bool:
    """True if they are equal, or cannot be compared."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or (math.isnan(one) and math.isnan(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, (str, bytes)):
        return bool(one == other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if is_holdfast_class(type(one)):
        one, other = _parts(one), _parts(other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    return getattr(one, "__qualname__", "") == getattr(other, "__qualname__", "")


def _parts(value: Any) -> Mapping[str, Any]:
    """The arguments that an object of holdfast's was made of."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return state_of(value) if isinstance(value, Described) else getattr(value, "__dict__", {})


def fixed_differences(spec: ExperimentSpec, script: Request) -> Iterator[str]:
    """A line for each difference between script and experiment that no restore can change."""
    logs = log_names_of(spec.options.get("log_to_file", False))
    decides = bool(spec.scheduler or spec.options.get("search"))
    goals = (("metric", spec.metric, script.metric), ("mode", spec.mode, script.mode))
    for name, was, now in (
        *((name, was, now) for name, was, now in goals if was or decides or not now),
        ("search_alg", spec.options.get("search", script.search_name), script.search_name),
        ("scheduler", spec.scheduler, script.scheduler_name),
        ("log_to_file", logs, log_names_of(script.run.log_to_file)),
    ):
        if was != now:
            yield difference(name, was or None, now or None)


def settings_differ(path: str, fixed: Sequence[str], changes: Sequence[str]) -> InvalidConfig:
    """The error that keeps an experiment from being changed by accident."""
    shown = "\n  ".join(dict.fromkeys([*fixed, *changes]))
    of_space = any(line.startswith("param_space") for line in changes)
    shell = "" if of_space else ", or --extend to holdfast resume"
    how = (
        f"To apply this and keep all results, pass extend=True to restore(), or together with "
        f"resume={shell}. To start another experiment and keep that one, use another "
        f"RunConfig(name=...); to remove it first: {holdfast_command('rm', path)}"
    )
    remedy = None if fixed else Remedy.EXTEND
    if fixed:
        names = ", ".join(line.partition(":")[0] for line in fixed)
        how = (
            f"A restore cannot change {names}: restore the earlier value, or start a new "
            f"experiment under another name=..."
        )
    text = f"The settings differ from those of the experiment in {path}:\n  {shown}\n{how}"
    return InvalidConfig(text).with_remedy(remedy)


def restored_request(
    opened: OpenedExperiment,
    *,
    trainable: Any,
    resume: ResumeConfig,
    changes: Changes,
    extend: bool,
    runtime_env: Mapping[str, Any] | RuntimeEnv | None,
    config: RunConfig | None = None,
    script: Request | None = None,
    trusted: bool = True,
    tune_config: TuneConfig | None = None,
    run_config: RunConfig | None = None,
) -> Request:
    """The request that began the experiment, with the caller's changes.

    `config`: the RunConfig that says where the experiment is. `script`: the request of a script
    that would also begin the experiment. `tune_config` and `run_config` replace what is pickled
    if that is not `trusted`.

    Raises NothingToRestore, BrokenTunerFile, NotTrusted, StorageError, and InvalidConfig for a
    trainable of another name, for what no restore can change, and, unless `extend`, for what
    differs.
    """
    environment = runtime_env_of(runtime_env, where="restore(runtime_env=...)")
    spec = opened.prepare()
    file = opened.tuner_file(trusted=trusted)
    if trainable is None and file.has_ray_names:
        ray_path.activate()
    trainable, given = _with_trainable(trainable, changes, file)
    changes = given.of(spec)
    stays: list[str] = []
    if script is not None:
        changes, stays = changes.without_said()
    fixed = [*changes.impossible(), *(fixed_differences(spec, script) if script else ())]
    if fixed or (changes.is_extension and not extend):
        raise settings_differ(opened.path, fixed, changes.lines())
    anew: Mapping[str, Any] | None = None
    if not trusted:
        anew = given_anew(
            spec,
            trainable=trainable,
            param_space=given.param_space,
            tune_config=tune_config,
            run_config=run_config,
        )
    file, param_space = _needed_objects(spec, file, trainable, given.param_space, anew)
    kept = _Kept(file, spec)
    before = spec.space_number + (changes.param_space is not None)
    spaces = {number: kept.load(numbered("param_space", number)) or {} for number in range(before)}
    request = Request(
        trainable=trainable if trainable is not None else file.load_trainable(),
        param_space=param_space,
        tune=_tune_config(spec, file, kept, changes),
        run=_run_config(opened, spec, file, kept, changes, environment),
        resume=resume,
        notices=(*filter(None, [opened.notice]), *stays, *kept.notices),
        spaces=spaces,
        changes=None if changes.is_nothing else changes,
        trusted=trusted,
        opened=opened,
    )
    check_same(spec, request)
    check_limit(request.search, changes.settings)
    ignored = [] if given.stop is not None else list(ignored_stop(config, spec))
    ignored += [] if script is None else ignored_arguments(request.tune, script.tune)
    found = _same_trainable(opened, spec, request)
    return replace(request, trainable=found, notices=(*request.notices, *ignored))


def _with_trainable(trainable: Any, changes: Changes, file: TunerFile) -> tuple[Any, Changes]:
    """Find the trainable. A training loop takes its own config out of a new `param_space`."""
    space = changes.param_space
    if trainable is None and space is not None:
        trainable = file.load_trainable()
    trainable = None if trainable is None else trainables.find_trainable(trainable)
    if isinstance(trainable, TrainLoop) and space is not None:
        trainable, space = trainable.in_space(space)
        changes = replace(changes, param_space=space)
    return trainable, changes


def _needed_objects(
    spec: ExperimentSpec,
    file: TunerFile,
    trainable: Any,
    space: Mapping[str, Any] | None,
    anew: Mapping[str, Any] | None,
) -> tuple[TunerFile, Mapping[str, Any]]:
    """The file with the user's objects, and the search space. `anew` has those that replace what
    an untrusted file has pickled.

    Raises BrokenTunerFile if a needed object cannot be loaded, NotTrusted.
    """
    if space is None and not spec.space:
        space = {}
    needed = {"trainable": trainable, "param_space": space}
    file.require([name for name, value in needed.items() if value is None])
    if anew is not None:
        check_given(file, spec, anew)
        file = file.with_objects(anew)
    if space is None:
        space = file.load(numbered("param_space", spec.space_number)) or {}
    return file, space


def _same_trainable(opened: OpenedExperiment, spec: ExperimentSpec, request: Request) -> Any:
    """The request's trainable. Raises InvalidConfig if it has another name than the
    experiment's."""
    found = trainables.find_trainable(request.trainable)
    if trainables.name_of(found) != spec.trainable:
        raise InvalidConfig(
            f"the experiment in {opened.path} was begun with the trainable {spec.trainable!r}, "
            f"but restore() was called with {trainables.name_of(found)!r}. Pass one of the same "
            f"name"
        )
    if isinstance(found, TrainLoop):
        found, _ = found.in_space(request.param_space)
    return found


def _tune_config(
    spec: ExperimentSpec, file: TunerFile, kept: _Kept, changes: Changes
) -> TuneConfig:
    return TuneConfig(
        metric=spec.metric,
        mode=spec.mode,
        num_samples=_first(changes.num_samples, spec.num_samples),
        time_budget_s=_first(changes.time_budget_s, spec.budget_s),
        search_alg=_NothingMore() if "search_alg" in kept.gone else file.load("search_alg"),
        scheduler=file.load("scheduler"),
        trial_name_creator=kept.load("trial_name_creator"),
        trial_dirname_creator=kept.load("trial_dirname_creator"),
        reuse_actors=changes.settings.get("reuse_actors", spec.reuse_actors),
        chdir_to_trial_dir=spec.options.get(CHDIR),
        confirm=changes.settings.get("confirm", spec.confirm),
    )


def _run_config(
    opened: OpenedExperiment,
    spec: ExperimentSpec,
    file: TunerFile,
    kept: _Kept,
    changes: Changes,
    runtime_env: RuntimeEnv,
) -> RunConfig:
    options = spec.options
    log = options.get("log_to_file", False)
    return RunConfig(
        name=opened.place.name,
        stop=_stop_of(spec, file) if changes.stop is None else changes.stop,
        callbacks=kept.load("callbacks"),
        progress_reporter=kept.load("progress_reporter"),
        failure_config=changes.settings.get("failure", spec.failure),
        checkpoint_config=changes.settings.get("checkpoint", spec.checkpoint),
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
    """True if the experiment cannot resume without the object.

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
