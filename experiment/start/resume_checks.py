"""One script for first start and restart: whether what it says is the experiment that is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.experiment.folder.persisted_files import log_names_of
from holdfast.experiment.start.extension import SETTINGS, difference, stop_text
from holdfast.experiment.start.same_arguments import otherwise
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.trial.config import CheckpointConfig, FailureConfig, RunConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.stoppers import text_of
from holdfast.trial.tuning import ResumeConfig, TuneConfig

if TYPE_CHECKING:
    from holdfast.experiment.start.request import Request

_RESUMES = ("never", "auto", "must")


def check_resume(resume: object, *, extend: bool, resume_config: ResumeConfig | None) -> bool:
    """Whether an experiment that exists is to be gone on with. Raises InvalidConfig."""
    if resume not in _RESUMES:
        raise InvalidConfig(f"resume must be one of {_RESUMES}, not {resume!r:.100}")
    if resume == "never" and (extend or resume_config is not None):
        raise InvalidConfig(
            "extend and resume_config say how fit() goes on with an experiment that exists: give "
            "resume='auto' or 'must' with them"
        )
    return resume != "never"


def said_settings(said: Request) -> dict[str, Any]:
    """What a script says of the settings that a restore can change."""
    return {
        "max_concurrent": said.max_concurrent,
        "reuse_actors": said.reuses_actors,
        "failure": said.run.failure_config,
        "checkpoint": said.run.checkpoint_config,
    }


def settings_of(
    path: object,
    max_concurrent_trials: int | None,
    failure_config: FailureConfig | None,
    checkpoint_config: CheckpointConfig | None,
) -> dict[str, Any]:
    """What a restore is given of them, also by the RunConfig that says where the experiment is.

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
    """Raises InvalidConfig where the kept search algorithm keeps to fewer trials at once."""
    own = getattr(search, "max_concurrent", None) if isinstance(search, Searcher) else None
    limit = settings.get("max_concurrent", 0)
    if own is not None and (limit is None or limit > own):
        raise InvalidConfig(
            f"{type(search).__name__}(max_concurrent={own}) is the search algorithm's own limit, "
            f"which a restore cannot change: max_concurrent_trials can be {own} at most, not "
            f"{limit or 'without limit'}"
        )


def stop_passed_over(config: RunConfig | None, spec: ExperimentSpec) -> Iterator[str]:
    """A notice of another `stop` in the RunConfig that only says where the experiment is."""
    stop = config.stop if config is not None else None
    if stop is not None and text_of(stop) != stop_text(spec):
        yield (
            f"restore() goes on with stop={stop_text(spec)}, not with the {text_of(stop)} of the "
            f"RunConfig: to change it, restore(..., stop=..., extend=True)"
        )


def arguments_passed_over(kept: TuneConfig, said: TuneConfig) -> Iterator[str]:
    """What to say where a script makes the same scheduler with other arguments."""
    # Other search algorithms may have come to know something since they were made.
    names = ["scheduler", *["search_alg"] * isinstance(said.search_alg, BasicVariantGenerator)]
    for name in names:
        begun_with = getattr(kept, name)
        if differs := otherwise(begun_with, getattr(said, name)):
            yield (
                f"{name}: another {', '.join(differs)} than the experiment was begun with; it "
                f"goes on with that {type(begun_with).__name__}, which a restore cannot change"
            )


def lasting_differences(spec: ExperimentSpec, said: Request) -> Iterator[str]:
    """What a script says otherwise than the experiment is, and no restore can change."""
    logs = log_names_of(spec.options.get("log_to_file", False))
    for name, was, now in (
        ("metric", spec.metric, said.metric),
        ("mode", spec.mode, said.mode),
        ("search_alg", spec.options.get("search", said.search_name), said.search_name),
        ("scheduler", spec.scheduler, said.scheduler_name),
        ("log_to_file", logs, log_names_of(said.run.log_to_file)),
    ):
        if was != now:
            yield difference(name, was or None, now or None)


def refused(
    path: str, lasting: Sequence[str], changes: Sequence[str], trainer: str
) -> InvalidConfig:
    """An experiment is not made another by accident; `trainer` is the class of one, or ""."""
    shown = "\n  ".join(dict.fromkeys([*lasting, *changes]))
    how = f"To go on so: {trainer}.restore(path, ...) takes another train_loop_config"
    if not trainer:
        how = (
            "To go on so, and keep all that there is, give extend=True to restore() or to "
            "fit(resume=...), or --extend to holdfast resume. Otherwise leave it as it was; "
            "objects in a param_space may be replaced by others in the same places"
        )
    if lasting:
        names = ", ".join(line.partition(":")[0] for line in lasting)
        how = (
            f"A restore cannot change {names}: put it back, or begin another experiment under "
            f"another RunConfig(name=...)"
        )
    return InvalidConfig(
        f"The settings differ from those of the experiment in {path}:\n  {shown}\n{how}"
    )
