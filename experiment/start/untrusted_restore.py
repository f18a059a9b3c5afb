"""Checks a restore that unpickles nothing: the arguments that replace pickles, and what it
refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.start.extension import difference, stop_text
from holdfast.experiment.start.request import Request
from holdfast.experiment.user_objects.tuner_file import NotTrusted, TunerFile, numbered
from holdfast.names import listed
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.schema import to_fields
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.stoppers import text_of
from holdfast.trial.tuning import TuneConfig

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
    if request.trusted or request.extension is not None:
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
    """Whether a value is carried as a pickle, anywhere in a tree of plain values."""
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
