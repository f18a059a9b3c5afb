"""The request of a restore: what began the experiment, with what is given anew in its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast.experiment.folder.layout import TUNER
from holdfast.experiment.start.extension import Extension, Wanted
from holdfast.experiment.start.request import Request
from holdfast.experiment.start.untrusted_restore import check_given
from holdfast.experiment.user_objects.tuner_file import BrokenTunerFile, TunerFile, numbered
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.trial.config import RunConfig, SyncConfig
from holdfast.trial.runtime_env import RuntimeEnv
from holdfast.trial.tuning import ResumeConfig, TuneConfig


def request_of_restore(
    spec: ExperimentSpec,
    file: TunerFile,
    *,
    name: str,
    storage: tuple[str | os.PathLike[str], Any],
    trainable: Any,
    param_space: Mapping[str, Any] | None,
    runtime_env: RuntimeEnv,
    resume: ResumeConfig,
    wanted: Wanted,
    given_anew: Mapping[str, Any] | None = None,
) -> Request:
    """The request that began the experiment, with what is given anew put in its place.

    `param_space` and what is `wanted` have been found to be no change, or one that is asked for.
    `given_anew`, by the names of fields, is there where nothing may be unpickled.
    Raises BrokenTunerFile where it cannot be made without what is not to be had.
    """
    space = {} if param_space is None and not spec.space else param_space
    given = {"trainable": trainable, "param_space": space}
    file.require([name for name, value in given.items() if value is None])
    if given_anew is not None:
        check_given(file, spec, given_anew)
        file = file.with_objects(given_anew)
    if space is None:
        space = file.load(numbered("param_space", spec.space_number)) or {}
    options = spec.options
    log = options.get("log_to_file", False)
    kept = _Kept(file, spec)
    before = spec.space_number + (wanted.param_space is not None)
    spaces = {number: kept.load(numbered("param_space", number)) or {} for number in range(before)}
    return Request(
        trainable=trainable if trainable is not None else file.load_trainable(),
        param_space=space,
        tune=TuneConfig(
            metric=spec.metric,
            mode=spec.mode,
            num_samples=_first(wanted.num_samples, spec.num_samples),
            time_budget_s=_first(wanted.time_budget_s, spec.budget_s),
            search_alg=_NothingMore() if "search_alg" in kept.gone else file.load("search_alg"),
            scheduler=file.load("scheduler"),
            trial_name_creator=kept.load("trial_name_creator"),
            trial_dirname_creator=kept.load("trial_dirname_creator"),
            reuse_actors=wanted.settings.get("reuse_actors", spec.reuse_actors),
        ),
        run=RunConfig(
            name=name,
            storage_path=storage[0],
            storage_filesystem=storage[1],
            stop=_stop_of(spec, file) if wanted.stop is None else wanted.stop,
            callbacks=kept.load("callbacks"),
            progress_reporter=kept.load("progress_reporter"),
            failure_config=wanted.settings.get("failure", spec.failure),
            checkpoint_config=wanted.settings.get("checkpoint", spec.checkpoint),
            sync_config=SyncConfig(**options.get("sync", {})),
            verbose=options.get("verbose"),
            log_to_file=tuple(log) if isinstance(log, list) else log,
            runtime_env=runtime_env,
        ),
        resume=resume,
        notices=tuple(kept.notices),
        spaces=spaces,
        extension=None if wanted.is_nothing else Extension(wanted=wanted, spec=spec),
        trusted=given_anew is None,
    )


def _first(given: Any, known: Any) -> Any:
    return known if given is None else given


class _Kept:
    """What of the user's objects tuner.pkl has kept, and the `notices` of what it has not.

    `gone` are those that were given to `fit()` and are not there.
    """

    def __init__(self, file: TunerFile, spec: ExperimentSpec) -> None:
        self._file = file
        self.notices: list[str] = []
        if file.fault:
            self.gone = [*spec.options.get("objects", ()), *["stop"] * spec.has_stopper]
            file.require([name for name in self.gone if _is_indispensable(name, spec)])
            self.notices.append(f"{file.fault}: the experiment goes on with what is given anew")
        else:
            missing = file.load("missing") or []
            self.gone = [name for name in missing if name not in ("trainable", "param_space")]
        self.notices += [_told_gone(name) for name in self.gone]

    def load(self, name: str) -> Any:
        """An object without which the experiment is the same, None where it cannot be had."""
        try:
            return self._file.load(name)
        except BrokenTunerFile as error:
            self.notices.append(f"{error.fault}: the experiment goes on without")
            return None


def _is_indispensable(name: str, spec: ExperimentSpec) -> bool:
    """The journal is folded through the scheduler, and means nothing with another one; without
    its stop function a run may have no end."""
    has_end = spec.num_samples != -1 or spec.time_budget_s is not None
    return name == "scheduler" or (name == "stop" and not has_end)


def _told_gone(name: str) -> str:
    if name == "search_alg":
        return f"{name} is not in {TUNER}: the trials that there are go on, and no others begin"
    return f"{name} is not in {TUNER}: the experiment goes on without"


def _stop_of(spec: ExperimentSpec, file: TunerFile) -> Any:
    if not spec.has_stopper:
        return dict(spec.stop)
    stop = file.load(numbered("stop", spec.stop_number))
    return _never if stop is None else stop


class _NothingMore(Searcher):
    """In place of a search algorithm that cannot be had any more: another would search on in its
    own way."""

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> str:
        return self.FINISHED


def _never(trial_id: str, result: Mapping[str, Any]) -> bool:
    """In place of a stop function that cannot be had any more."""
    return False
