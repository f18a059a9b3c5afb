"""What a restore changes in an experiment: its settings, and the code of its trials."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.shell import holdfast_command, module_path
from holdfast.experiment.progress.wording import retry_way
from holdfast.experiment.user_objects.pickling import SCRIPT, NotPicklable
from holdfast.experiment.user_objects.stored_objects import StoredField, stored
from holdfast.experiment.user_objects.tuner_file import (
    CODE,
    TunerFile,
    differ,
    digest_of,
    name_in_script,
    numbered,
    place_of,
    recorded_code,
    script_of,
)
from holdfast.experiment.worker import trainables
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.scheduler.events import ExperimentSpec, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.resuming import is_selected
from holdfast.scheduler.state import row_of
from holdfast.text.values import counted
from holdfast.trial.config import SAID, ResumeConfig, ResumeType, TuneConfig, check_stop
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import has_metric, names_text, near_text
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.description import changes as space_changes
from holdfast.trial.search_space.description import describe
from holdfast.trial.stoppers import (
    bounds_of,
    is_asked,
    is_users_own,
    text_of,
    timeout_of,
    watched_by,
)
from holdfast.trial.trial import Status, Trial


def code_field(trainable: Any) -> dict[str, StoredField]:
    """The field of tuner.pkl that says which code the trials run, and where its modules are; plain
    data."""
    code = {"modules": _modules_of(trainable)}
    if not isinstance(trainable, TrainLoop):
        code |= {"digest": digest_of(trainable), "script": name_in_script(trainable)}
    return {CODE: stored(code, CODE)}


def _modules_of(trainable: Any) -> str:
    """Where the modules of the trainable are found: as the script does, and in the folder of a
    module that a command has imported."""
    module = sys.modules.get(trainables.module_of(trainable))
    file = None if isinstance(trainable, TrainLoop) else getattr(module, "__file__", None)
    found = module_path().split(os.pathsep)
    if module is not None and file is not None and module.__name__ not in SCRIPT:
        root = Path(os.path.abspath(file)).parents[module.__name__.count(".")]
        # Those of an environment change with it.
        is_installed = root.name in ("site-packages", "dist-packages")
        found += [str(root)] * (str(root) in sys.path and not is_installed)
    return os.pathsep.join(dict.fromkeys(filter(None, found)))


def has_changed(trainable: Any, file: TunerFile) -> bool:
    """True if the trials ran other code, as far as known."""
    if isinstance(trainable, TrainLoop):
        return False
    return differ(recorded_code(file).get("digest", ""), digest_of(trainable))


def store(trainable: Any, file: TunerFile) -> None:
    """Replace the stored trainable by this one, which the trials run from now on."""
    with suppress(NotPicklable):  # as in debug mode: the stored one stays
        file.extend({"trainable": stored(trainable, "the trainable"), **code_field(trainable)})


def retried(resume: ResumeConfig, machine: Machine) -> ResumeConfig:
    """Which trials run again with corrected code: the failed ones, and in a finished experiment
    all if none has reported anything."""
    if machine.finished and not _has_rows(machine):
        return replace(resume, errored="restart", finished="restart")
    return replace(resume, errored=retry_way(_failed(machine)))


def change_notice(
    trainable: Any, name: str, path: str, machine: Machine, resume: ResumeConfig
) -> str:
    """The warning about the results of the earlier code."""
    text = f"{place_of(trainable)} has changed since these trials ran"
    failed = len(_failed(machine))
    if resume.finished == "restart" and not _has_rows(machine):
        return f"{text}, and none reported anything: they start again"
    if failed and resume.errored != "skip":
        again = "starts again" if failed == 1 else "start again"
        text += f": {counted(failed, 'failed trial', 'failed trials')} {again} with the new code"
        if not (others := len(machine.trials) - failed):
            return text
        return f"{text}, the results of the other {others} are of the earlier code. {_anew(path)}"
    unfinished = sum(not trial.status.is_final for trial in machine.trials.values())
    rest = counted(unfinished, "unfinished trial continues", "unfinished trials continue")
    continues = f", and {rest} with the new code" * (unfinished > 0)
    return f"{text}: {name} has results of the earlier code{continues}. {_anew(path)}"


def _anew(path: str) -> str:
    rm = holdfast_command("rm", path)
    return f"For a new run use another name, leave out resume, or {rm} first"


def name_for_shell(trainable: Any) -> str:
    """`/code/train.py:train`, for any directory; "" unless the script has the name."""
    script, name = script_of(trainable), name_in_script(trainable)
    if script is None or not name:
        return ""
    return f"{os.path.abspath(script)}:{name.rpartition(':')[2]}"


def is_stored(trainable: Any) -> bool:
    """True if the experiment has the code of the trainable, since no module has it by name."""
    is_inside = "<locals>" in getattr(trainable, "__qualname__", "")
    return is_inside or trainables.module_of(trainable) in SCRIPT


def _has_rows(machine: Machine) -> bool:
    return any(trial.row is not None for trial in machine.trials.values())


def _failed(machine: Machine) -> list[Trial]:
    return [trial for trial in machine.trials.values() if trial.status is Status.ERROR]


# The option of an experiment that holds the text of its stopper.
STOPPER = "stopper"
_SHOWN = 12
# The fields of the spec that any restore may change, since no earlier decision depends on them,
# and their names in TuneConfig and RunConfig.
SETTINGS: Final[Mapping[str, str]] = {
    "max_concurrent": "max_concurrent_trials",
    "reuse_actors": "reuse_actors",
    "confirm": "confirm",
    "failure": "failure_config",
    "checkpoint": "checkpoint_config",
    # Only where none was given, and nothing has been decided by it.
    "metric": "metric",
    "mode": "mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The settings that the caller of a restore gives. None leaves one as it was; an infinite
    `time_budget_s` removes the budget. `fits_budget`: it is that of `budget`, whose trials end by
    themselves; None: as it was.

    `settings` maps names of SETTINGS to new values. `is_sure`: a user's own stopper counts as a
    new one even if it has the name of the former, because only the name is known. `before` is the
    experiment's spec, with which they are compared. Raises InvalidConfig for invalid values.
    """

    num_samples: int | None = None
    stop: Any = None
    param_space: Mapping[str, Any] | None = None
    time_budget_s: Any = None
    fits_budget: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_sure: bool = False
    before: ExperimentSpec | None = None

    def __post_init__(self) -> None:
        if self.num_samples is not None:
            TuneConfig(num_samples=self.num_samples)
        TuneConfig(time_budget_s=self.time_budget_s)
        check_stop(self.stop)

    def of(self, spec: ExperimentSpec) -> Changes:
        """Those that change something in an experiment with this spec."""
        samples, stop, space = self.num_samples, self.stop, self.param_space
        is_same_kind = self._fits(spec) == spec.fits_budget
        is_same_budget = is_same_kind and self._budget == spec.time_budget_s
        return replace(
            self,
            before=spec,
            num_samples=None if samples == spec.num_samples else samples,
            stop=stop if stop is not None and self._is_another(stop, spec) else None,
            param_space=space if space is not None and space_changes(spec.space, space) else None,
            time_budget_s=None if is_same_budget else self.time_budget_s,
            settings={k: v for k, v in self.settings.items() if v != getattr(spec, k)},
        )

    def without_said(self) -> tuple[Changes, list[str]]:
        """Leave out what the script has said before a person changed it, and a notice of each."""
        changes, notices, spec = self, [], self._spec
        for name, before in spec.options.get(SAID, {}).items():
            if name == "num_samples" and self.num_samples == before:
                changes = replace(changes, num_samples=None)
            elif name in self.settings and self.settings[name] == before:
                others = {k: v for k, v in changes.settings.items() if k != name}
                changes = replace(changes, settings=others)
            else:
                continue
            notices.append(_kept(SETTINGS.get(name, name), getattr(spec, name), before))
        return changes, notices

    @property
    def _spec(self) -> ExperimentSpec:
        assert self.before is not None, "call of() first"
        return self.before

    @property
    def is_extension(self) -> bool:
        """True if it changes the experiment itself, which requires `extend=True`."""
        given = (self.num_samples, self.stop, self.param_space, self.time_budget_s)
        return any(value is not None for value in given)

    @property
    def is_nothing(self) -> bool:
        return not self.is_extension and not self.settings

    def impossible(self) -> Iterator[str]:
        """A line for each setting that no restore can change."""
        spec = self._spec
        given, known = self.settings.get("checkpoint", spec.checkpoint), spec.checkpoint
        attribute, before = given.checkpoint_score_attribute, known.checkpoint_score_attribute
        if attribute != before:
            # Existing checkpoints have only the score that was reported with them.
            yield difference("checkpoint_score_attribute", before, attribute)
        if self.num_samples is not None and spec.options.get("trainer"):
            # A trainer's experiment is one trial; `fit` returns its result.
            yield difference("num_samples", spec.num_samples, self.num_samples)

    def lines(self) -> list[str]:
        """A line for each change, with the old and the new value."""
        told, spec = [], self._spec
        if self.num_samples is not None:
            told.append(difference("num_samples", spec.num_samples, self.num_samples))
        if self.stop is not None:
            was, now = stop_text(spec), text_of(self.stop)
            told.append(f"stop: was {was}, now {'a different one' if now == was else now}")
        if self.time_budget_s is not None:
            told += self._budget_lines(spec)
        if self.param_space is not None:
            found = space_changes(spec.space, self.param_space)
            told += [f"param_space: {line}" for line in found[:_SHOWN]]
            told += [f"param_space: {len(found) - _SHOWN} more"] * (len(found) > _SHOWN)
        return [
            *told,
            *(difference(SETTINGS[k], getattr(spec, k), v) for k, v in self.settings.items()),
        ]

    def applied(self, *, made: int, strict: bool, resources: object) -> ExperimentSpec:
        """The spec from now on; `made` is the number of trials that exist."""
        spec = self._spec
        if self.num_samples is not None:
            spec = replace(spec, num_samples=self.num_samples)
        if self.time_budget_s is not None:
            fits = self._fits(spec)
            spec = replace(spec, time_budget_s=self._budget, fits_budget=fits)
        if self.stop is not None:
            said = stop_fields(self.stop)
            options = {**spec.options, **stop_options(self.stop)}
            number = spec.stop_number + 1
            spec = replace(spec, **said, strict_stop=strict, stop_number=number, options=options)
        if self.param_space is not None:
            spec = replace(
                spec,
                space=tuple(describe(self.param_space)),  # as it is read back
                space_number=spec.space_number + 1,
                space_from=made,
                resources=resources if isinstance(resources, PlacementGroupFactory) else None,
            )
        return _unsaid(replace(spec, **self.settings), self._named)

    @property
    def _named(self) -> set[str]:
        """The fields of the spec that it changes."""
        return {*self.settings, *["num_samples"] * (self.num_samples is not None)}

    def keep(self, file: TunerFile, spec: ExperimentSpec) -> None:
        """Write the objects where a restore finds them, before the journal names them.

        `spec` is what `applied` returned. Raises NotPicklable, BrokenTunerFile, OSError.
        """
        objects: dict[str, StoredField] = {}
        if self.param_space is not None:
            name = numbered("param_space", spec.space_number)
            objects[name] = stored(dict(self.param_space), "param_space")
        if self.stop is not None and spec.has_stopper:
            objects[numbered("stop", spec.stop_number)] = stored(self.stop, "stop")
        file.extend(objects)

    @property
    def _budget(self) -> float | None:
        return TuneConfig(time_budget_s=self.time_budget_s).budget_seconds

    def _fits(self, spec: ExperimentSpec) -> bool:
        return spec.fits_budget if self.fits_budget is None else self.fits_budget

    def _budget_lines(self, spec: ExperimentSpec) -> list[str]:
        name, had, now = budget_name(self._fits(spec)), spec.time_budget_s, self._budget
        if had is None or self._fits(spec) == spec.fits_budget:
            return [difference(name, had, now)]
        return [difference(budget_name(spec.fits_budget), had, None), difference(name, None, now)]

    def _is_another(self, stop: Any, spec: ExperimentSpec) -> bool:
        return (self.is_sure and is_users_own(stop)) or text_of(stop) != stop_text(spec)


def extended(
    changes: Changes | None, machine: Machine, *, strict: bool, resources: object
) -> ExperimentSpec | None:
    """The new spec of a resumed experiment; None if it keeps its spec.

    Raises InvalidConfig where the experiment could not run with it.
    """
    if changes is None:
        return None

    def changed(made: int) -> ExperimentSpec:
        return changes.applied(made=made, strict=strict, resources=resources)

    # The planned number of trials follows from the rest, so it is no difference.
    was = machine.spec.planned(None)
    if was == changed(machine.spec.space_from).planned(None):
        return None  # the same tuner has applied it in an earlier fit()
    if machine.spec != changes.before:
        raise InvalidConfig(
            "another restore has changed the experiment since this one was prepared: call "
            "Tuner.restore() again"
        )
    spec = changed(len(machine.trials))
    _check(machine, spec)
    return spec


def trained_further(resume: ResumeConfig, machine: Machine, spec: ExperimentSpec) -> ResumeConfig:
    """Let a finished training with other settings resume from its newest checkpoint. Without one
    it begins again if its config has changed."""
    has_saved = any(trial.checkpoints for trial in machine.trials.values())
    is_other = spec.space_number != machine.spec.space_number
    return replace(resume, finished="restart" if is_other and not has_saved else "resume")


def budget_name(fits: bool) -> str:
    """The name of the setting that limits the time."""
    return "budget" if fits else "time_budget_s"


def difference(name: str, was: object, now: object) -> str:
    """One line with both values; for two objects of one class only the fields that differ."""
    before, after = (str("none" if value is None else value) for value in (was, now))
    if is_dataclass(was) and type(was) is type(now):
        names = [f.name for f in fields(was) if getattr(was, f.name) != getattr(now, f.name)]
        before, after = (
            ", ".join(f"{part}={getattr(one, part)!r}" for part in names) for one in (was, now)
        )
    return f"{name}: was {before}, now {after}"


def _unsaid(spec: ExperimentSpec, names: Set[str]) -> ExperimentSpec:
    """Forget what the script had said of these settings before a person changed them."""
    said = spec.options.get(SAID, {})
    if not said.keys() & names:
        return spec
    left = {name: value for name, value in said.items() if name not in names}
    options = {key: value for key, value in spec.options.items() if key != SAID}
    return replace(spec, options={**options, SAID: left} if left else options)


def _kept(name: str, now: object, said: object) -> str:
    stays, before = ("without limit" if one is None else one for one in (now, said))
    return (
        f"{name} stays {stays}, which a person set while the experiment ran (the script still "
        f"says {before}). To change it, write another value in the script"
    )


def stop_fields(stop: Any) -> dict[str, Any]:
    """The fields of the spec that describe a stop condition."""
    return {
        "stop": bounds_of(stop),
        "has_stopper": is_asked(stop),
        "timeout_s": timeout_of(stop),
        "stop_metrics": watched_by(stop),
    }


def stop_options(stop: Any) -> dict[str, Any]:
    return {STOPPER: None if isinstance(stop, Mapping) else text_of(stop)}


def stop_text(spec: ExperimentSpec) -> str:
    """The text of an experiment's stop condition, as `text_of` makes it."""
    return spec.options.get(STOPPER) or text_of(dict(spec.stop))


def _check(machine: Machine, spec: ExperimentSpec) -> None:
    """Raises InvalidConfig where the changed experiment would end at once."""
    budget_s = spec.budget_s
    if budget_s is not None and budget_s != machine.spec.budget_s and budget_s <= machine.active_s:
        raise InvalidConfig(
            f"{budget_name(spec.fits_budget)}={budget_s:g} is already used up "
            f"({machine.active_s:.1f} s over all restores). Pass a larger one"
        )
    trials = [trial for trial in machine.trials.values() if trial.row is not None]
    rows = [row_of(trial) for trial in trials]
    known = {*machine.spec.stop, *machine.spec.stop_metrics}
    for name in (*spec.stop, *spec.stop_metrics):
        is_new = spec.strict_stop and name not in known
        if is_new and rows and not any(has_metric(row, name) for row in rows):
            raise InvalidConfig(
                f"stop names {name!r}, which no trial has in its newest report."
                f"{near_text([name], rows[-1])} If it is reported only later, set "
                f"TUNE_DISABLE_STRICT_METRIC_CHECKING=1. Reported metrics: "
                f"{names_text(trials[-1].row or {})}"
            )


def check_enough(machine: Machine, changes: Changes, total: int | None) -> None:
    """Raises InvalidConfig where more trials exist than the changed experiment would have."""
    made = machine.made_by_search
    if changes.num_samples is not None and total is not None and total < made:
        raise InvalidConfig(
            f"num_samples={changes.num_samples} makes {total} trials in all, and {made} exist "
            f"already (it was {machine.spec.num_samples}). Trials are not removed: leave "
            f"num_samples as it was, or raise it"
        )


def extension_notice(machine: Machine, first: Resumed, changes: Changes, total: int | None) -> str:
    """What changes, from what to what, and what that means for the trials."""
    assert first.spec is not None
    lines, errored = changes.lines(), machine.errored
    if not changes.is_extension:
        text = [f"from now on, {'; '.join(lines)}"]
    else:
        is_one = bool(machine.spec.options.get("trainer"))
        text = [f"the {'training' if is_one else 'experiment'} is extended:"]
        text += (f"  {line}" for line in lines)
        if not is_one:
            text += _trial_lines(machine, first, total, is_anew=changes.param_space is not None)
        elif first.finished is ResumeType.RESTART:
            text.append("  it begins again: it has no checkpoint to train further from")
    concerns_them = changes.is_extension or "failure" in changes.settings
    if errored and concerns_them and first.errored == "skip":
        text.append(f"  failed trials left as they are: {errored}; {_TO_RESUME.format('errored')}")
    return "\n".join(text)


_TO_RESUME = "to resume them: ResumeConfig({0}='resume'), or holdfast resume --resume-{0}"


def _trial_lines(
    machine: Machine, first: Resumed, total: int | None, *, is_anew: bool
) -> Iterator[str]:
    trials = machine.trials.values()
    spec = first.spec or machine.spec
    finished = [trial for trial in trials if trial.status is Status.TERMINATED]
    going_on = sum(is_selected(trial, first, spec) for trial in finished)
    if going_on:
        judge = f", as long as {spec.scheduler} lets them" if spec.scheduler else ""
        yield f"  finished trials that resume: {going_on} of {len(finished)}{judge}"
    elif finished and first.finished == "skip":
        how = _TO_RESUME.format("finished")
        yield f"  finished trials left as they are: {len(finished)}; {how}"
    left = None if total is None else max(0, total - machine.made_by_search)
    none = ", a larger num_samples starts some in the new param_space" if is_anew else ""
    yield f"  trials still to start: {'unlimited' if left is None else left or f'0{none}'}"
