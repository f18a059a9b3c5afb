"""`holdfast replay`. It loads none of the user's code."""

from __future__ import annotations

import argparse
import json
from typing import Any

from holdfast.cli.printing import answer
from holdfast.experiment.folder.settings import Settings
from holdfast.scheduler.policy import TrialScheduler
from holdfast.trial.errors import InvalidConfig


def replay(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises ExperimentNotFound, InvalidConfig, StorageError."""
    from holdfast.simulate import replay as replayed

    found = replayed(
        given.path,
        scheduler=_scheduler(given.scheduler, dict(map(_option, given.option))),
        workers=given.workers,
        metric=given.metric,
        mode=given.mode,
        seed=given.seed,
    )
    return answer(given, {"path": given.path, **found.plain()}, *str(found).splitlines())


def _scheduler(name: str, options: dict[str, Any]) -> TrialScheduler:
    from holdfast.experiment.start.short_names import create_scheduler

    try:
        return create_scheduler(name, **options)
    except (InvalidConfig, TypeError) as error:  # TypeError: an unknown option
        raise InvalidConfig(f"--scheduler {name}: {error}") from error


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise InvalidConfig(f"--option takes NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
