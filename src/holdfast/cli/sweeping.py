"""`holdfast run`: runs or resumes what a sweep file describes."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.printing import SOUND, WRONG, answer, complain, quoted, say_json
from holdfast.errors import Remedy
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.experiment.start.extension import budget_name, has_changed
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.names import printable
from holdfast.results.overview import experiment_as_json
from holdfast.results.reading import ExperimentNotFound, find
from holdfast.sweep.running import OpenedSweep, open_sweep
from holdfast.trial.errors import ExperimentExists, InvalidConfig

if TYPE_CHECKING:
    from holdfast.results.result_grid import ResultGrid

_EXAMPLES = 3


def run_sweep(given: argparse.Namespace, settings: Settings) -> int:
    """Returns 0, or 1 if a trial failed. Raises the errors of Tuner and fit."""
    opened = open_sweep(
        Path(given.path),
        settings,
        sets=given.set,
        given={
            "name": given.name,
            "storage_path": given.storage,
            "num_samples": given.samples,
        },
    )
    for note in opened.sweep.notes:
        complain(f"note: {note}")
    if given.dry_run:
        return _show(opened, given)
    ended = None if given.new or given.extend else _ended(opened, settings)
    if ended is None:
        results = _fit(opened, given)
        code = WRONG if results.num_errors else SOUND
    else:
        code = _say_ended(ended, given)
    if given.json:
        found = find(opened.path, settings, os.environ)
        say_json(experiment_as_json(found, now=time.time()))
    return code


def _fit(opened: OpenedSweep, given: argparse.Namespace) -> ResultGrid:
    """Run or resume it. The errors of fit() also say what to do in a shell."""
    again = _again(given)
    try:
        return opened.fit(
            resume="never" if given.new else "auto",
            extend=given.extend,
            command=_again(given, from_anywhere=True),
        )
    except ExperimentExists as error:
        hint = f"In a shell: {again} without --new resumes it; --name N starts another"
        raise InvalidConfig(f"{error}\n{hint}") from error
    except InvalidConfig as error:
        if error.remedy is not Remedy.EXTEND:
            raise
        hint = f"In a shell: {again} --extend applies this; --name N starts another experiment"
        raise InvalidConfig(f"{error}\n{hint}") from error


def _ended(opened: OpenedSweep, settings: Settings) -> ExperimentView | None:
    """The experiment of this name, if all its trials have ended; None if some have failed that
    would run again, since the command has changed, and if the file says something else than the
    experiment was run with, which fit() applies or refuses."""
    try:
        found = find(opened.path, settings, os.environ)
    except ExperimentNotFound:
        return None
    condition = found.condition(time.time())
    if condition not in (Condition.FINISHED, Condition.ERRORED):
        return None
    if not opened.is_as_said(found.machine.spec):
        return None
    if condition is Condition.ERRORED and found.layout is not None:
        file = TunerFile(found.layout.tuner, trusted=False)
        return None if has_changed(opened.sweep.trainable, file) else found
    return found


def _again(
    given: argparse.Namespace, *, has_samples: bool = True, from_anywhere: bool = False
) -> str:
    """The command, with its options except how it resumes; `from_anywhere`, with absolute paths
    and, if the shell needs it, the path of Python."""
    words, storage = [given.path], given.storage
    if from_anywhere:
        words = [os.path.abspath(given.path)]
        if storage is not None and "://" not in storage:
            storage = os.path.abspath(os.path.expanduser(storage))
    for option, value in (("--name", given.name), ("--storage", storage)):
        words += [] if value is None else [option, value]
    words += [word for text in given.set for word in ("--set", text)]
    if has_samples and given.samples is not None:
        words += ["--samples", str(given.samples)]
    if from_anywhere:
        return holdfast_command("run", *words)
    return f"holdfast run {' '.join(map(quoted, words))}"


def _more(found: ExperimentView) -> str:
    spec = found.machine.spec
    if spec.num_samples == -1 and spec.time_budget_s is not None:
        return (
            f"--set {budget_name(spec.fits_budget)}=S --extend   # searches for S seconds in total"
        )
    return "--extend --samples N   # has N trials in total"


def _say_ended(found: ExperimentView, given: argparse.Namespace) -> int:
    path = quoted(found.shown)
    count, failed = len(found.machine.trials), found.machine.errored
    complain(
        f"{found.name} has ended: {count} trial{'s' * (count != 1)}"
        f"{f', {failed} failed' if failed else ''}\n"
        f"  holdfast show {path}   # shows them\n"
        + (
            (
                f"  {_again(given)}   # restarts what failed, once its command or script changes\n"
                f"  holdfast resume --restart-errored {path}   # restarts what failed as it is\n"
            )
            * bool(failed)
        )
        + f"  {_again(given)} --new   # starts a new run under this name\n"
        f"  {_again(given, has_samples=False)} {_more(found)}"
    )
    return WRONG if failed else SOUND


def _show(opened: OpenedSweep, given: argparse.Namespace) -> int:
    tune, trainable = opened.tune, opened.sweep.trainable
    search = type(tune.search_alg).__name__ if tune.search_alg else "random or grid search"
    examples = opened.examples(_EXAMPLES)
    scheduler = type(tune.scheduler).__name__ if tune.scheduler else None
    plain = {
        "path": quoted(opened.path),
        "command": list(trainable.words),
        "examples": examples,
        "num_samples": tune.num_samples,
        "trials": opened.trials,
        "search": search,
        "scheduler": scheduler,
    }
    count = opened.trials
    trials = "no limit on trials" if count is None else f"{count:,} trial{'s' * (count != 1)}"
    lines = [f"results: {quoted(opened.path)}"]
    lines.append(f"trials:  {', '.join(filter(None, (trials, search, scheduler)))}")
    for number, example in enumerate(examples):
        lines.append(f"{'command: ' if number == 0 else 'or:      '}{printable(example)}")
    return answer(given, plain, *lines)
