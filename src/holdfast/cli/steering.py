"""The commands that steer a live run: each sends one order to the process that runs it."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from holdfast.cli.printing import SOUND, answer, ask
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import resume_command
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.experiment.steering.orders import (
    AddConfig,
    AddTrials,
    LimitTrials,
    Order,
    PauseTrials,
    ResumeTrials,
    StopExperiment,
    StopTrials,
    WriteNote,
)
from holdfast.names import listed
from holdfast.results.logs import trial_named
from holdfast.results.reading import find
from holdfast.results.steering_client import CannotSteer, send_order, why_not
from holdfast.trial.errors import InvalidConfig

_SHOWN = 10
# The options of `holdfast resume` that are for a restore.
_OF_A_RESTORE = (
    *("trainable", "untrusted", "resume_errored", "restart_errored", "skip_unfinished"),
    *("resume_finished", "restart_finished", "extend", "num_samples", "stop", "time_budget"),
    "max_concurrent_trials",
)


def perform(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises CannotSteer, InvalidOrder, and what `find` raises."""
    experiment = find(given.path, settings, os.environ, asks=False)
    if reason := why_not(experiment):
        raise CannotSteer(_instead(given, experiment) or reason)
    order = _order(given, experiment)
    if isinstance(order, StopTrials):
        code = ask(given, _question(order), "no trial is stopped")
        if code != SOUND:
            return code
    text = send_order(experiment, order, via="command")
    lines = [f"{experiment.name}: {text}"]
    if isinstance(order, StopExperiment):
        lines.append(f"To resume: {resume_command(given.path)}")
    return answer(given, {"path": experiment.shown, "text": text}, *lines)


def _instead(given: argparse.Namespace, experiment: ExperimentView) -> str:
    """The way to add trials to an experiment that no process runs; "" for another order."""
    if given.command != "add" or given.config is not None or experiment.holder:
        return ""
    samples = experiment.machine.spec.num_samples
    if samples < 0 or experiment.condition(time.time()) is Condition.LIVE:
        return ""
    command = resume_command(given.path, "--extend", "--num-samples", str(samples + given.count))
    return f"no process runs {experiment.shown}. To run it with more samples: {command}"


def _order(given: argparse.Namespace, experiment: ExperimentView) -> Order:
    """Raises InvalidConfig, NoSuchTrial."""
    match given.command:
        case "stop":
            ids = _trials(given, experiment)
            return StopTrials(trials=ids) if ids else StopExperiment()
        case "pause":
            return PauseTrials(trials=_trials(given, experiment), now=given.now)
        case "resume":
            _check_no_restore(given)
            return ResumeTrials(trials=_trials(given, experiment))
        case "limit":
            return LimitTrials(max_concurrent=given.most or None)
        case "add" if given.config is not None:
            return AddConfig(config=_config(given.config))
        case "add":
            if not given.count:
                raise InvalidConfig("--trials must be at least 1")
            return AddTrials(count=given.count)
        case "note":
            return WriteNote(trial=trial_named(experiment, given.trial).trial_id, text=given.text)
        case _:
            raise AssertionError(given.command)


def _check_no_restore(given: argparse.Namespace) -> None:
    for name in _OF_A_RESTORE:
        value = getattr(given, name)
        if value or (value == 0 and value is not False):
            option = f"--{name.replace('_', '-')}"
            raise InvalidConfig(
                f"{option} is for a restore of the whole experiment, and TRIAL for a live run: "
                f"leave one of them out"
            )


def _trials(given: argparse.Namespace, experiment: ExperimentView) -> tuple[str, ...]:
    found = (trial_named(experiment, name).trial_id for name in given.trials)
    return tuple(dict.fromkeys(found))


def _config(text: str) -> dict[str, Any]:
    """The config in an argument, or in the file that it names. Raises InvalidConfig, OSError."""
    what = "--config"
    if not text.lstrip().startswith("{"):
        what, text = f"--config {text}", Path(text).read_text()
    try:
        config: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{what} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidConfig(f"{what} must be an object, as in '{{\"lr\": 0.1}}'")
    return config


def _question(order: StopTrials) -> str:
    several = listed(order.trials, _SHOWN)
    if len(order.trials) == 1:
        return f"Stop {several} for good? Its results are kept, and it cannot continue"
    return (
        f"Stop {len(order.trials):,} trials ({several}) for good? Their results are kept, and "
        f"they cannot continue"
    )
