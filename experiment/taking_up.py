"""One script for first start and restart: whether what it says is the experiment that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from holdfast.experiment.settings import Settings
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.config import ResumeConfig, RunConfig
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    from holdfast.experiment.request import Request

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


def lasting_differences(spec: ExperimentSpec, said: Request) -> Iterator[str]:
    """What a script says otherwise than the experiment is, and no restore can change."""
    tune, run = said.tune, said.run
    for name, was, now in (
        ("metric", spec.metric, tune.metric),
        ("mode", spec.mode, tune.mode),
        ("search_alg", spec.options.get("search", said.search_name), said.search_name),
        ("scheduler", spec.scheduler, said.scheduler_name),
        ("max_concurrent_trials", spec.max_concurrent, said.max_concurrent),
        ("failure_config", spec.failure, run.failure_config),
        ("checkpoint_config", spec.checkpoint, run.checkpoint_config),
    ):
        if was != now:
            yield "{}: was {}, now {}".format(name, *_in_short(was or "none", now or "none"))


def _in_short(was: object, now: object) -> tuple[str, str]:
    """Of two settings of one kind only what differs."""
    if not is_dataclass(was) or type(was) is not type(now):
        return str(was), str(now)
    names = [f.name for f in fields(was) if getattr(was, f.name) != getattr(now, f.name)]
    told = (", ".join(f"{name}={getattr(one, name)!r}" for name in names) for one in (was, now))
    return next(told), next(told)


def refused(
    path: str, lasting: Sequence[str], changes: Sequence[str], trainer: str
) -> InvalidConfig:
    """An experiment is not made another by accident; `trainer` is the class of one, or ""."""
    shown = "\n  ".join([*lasting, *changes])
    how = f"To go on so: {trainer}.restore(path, ...) takes another train_loop_config"
    if not trainer:
        how = (
            "To go on so, and keep all that there is, give extend=True to restore() or to "
            "fit(resume=...). Otherwise leave it as it was; objects in a param_space may be "
            "replaced by others in the same places"
        )
    if lasting:
        names = ", ".join(line.partition(":")[0] for line in lasting)
        how = (
            f"A restore cannot change {names}: put it back, or begin another experiment under "
            f"another RunConfig(name=...)"
        )
    return InvalidConfig(f"this is not what the experiment in {path} is:\n  {shown}\n{how}")


def came_to_nothing(run: RunConfig) -> bool:
    """Whether the experiment of that name has ended before anything was reported."""
    from holdfast.experiment.place import open_for_restore, place_of
    from holdfast.experiment.recovery import recover

    settings = Settings.read(os.environ)
    path, filesystem = place_of(run, None, settings)
    found = open_for_restore(path, filesystem, settings, os.environ)
    machine = recover(found.place.layout).machine
    return machine.finished and machine.is_barren
