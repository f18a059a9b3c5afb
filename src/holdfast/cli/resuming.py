"""`holdfast resume`: Tuner.restore(PATH).fit() from a shell."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast import started_by_import
from holdfast.cli.common_arguments import settle
from holdfast.cli.printing import SOUND, WRONG, quoted, say_json
from holdfast.compat import ray_path
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import holdfast_command, resume_command
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.start.extension import name_for_shell
from holdfast.experiment.user_objects.tuner_file import (
    TunerFile,
    has_changed_in,
    place_of,
    recorded_code,
    script_of,
)
from holdfast.experiment.worker.command.trainable import CommandTrainable
from holdfast.text.values import counted
from holdfast.trial.config import ResumeConfig
from holdfast.trial.errors import ExperimentInUse, InvalidConfig, TuneError


class ModuleMissing(TuneError):
    """The trainable needs a module that is not found from the current directory."""


def resume(given: argparse.Namespace, settings: Settings) -> int:
    """Returns 0, or 1 if a trial failed. Raises the errors of Tuner.restore and fit."""
    stop = stop_of(given)
    settle(given)
    if given.trainable is not None:
        _take_ray_names(given.path, settings)
    # As with `python script.py`: the user's modules are found from here.
    sys.path.insert(0, os.getcwd())
    if not given.untrusted:
        _find_modules(given.path, settings)
    tuner = _restored(
        settings,
        given.path,
        None if given.trainable is None else _named(given.trainable),
        resume_config=resume_config_of(given),
        num_samples=given.num_samples,
        stop=stop,
        time_budget_s=given.time_budget,
        max_concurrent_trials=given.max_concurrent_trials,
        extend=given.extend,
        trusted=not given.untrusted,
    )
    if given.trainable is None:
        _check_code(tuner.trainable, given)
    try:
        results = tuner.fit()
    except ExperimentInUse as error:
        raise _with_paused(error, given.path, settings) from error
    if given.json:
        from holdfast.results.overview import experiment_as_json
        from holdfast.results.reading import find

        experiment = find(given.path, settings, os.environ)
        say_json(experiment_as_json(experiment, now=time.time()))
    return WRONG if results.num_errors else SOUND


def _with_paused(error: ExperimentInUse, path: str, settings: Settings) -> ExperimentInUse:
    """The error, with how to resume what a person has paused in the live run."""
    from holdfast.results.reading import find

    held = find(path, settings, os.environ, asks=False).machine.held
    if not held:
        return error
    paused = counted(len(held), "trial is paused", "trials are paused")
    one = "it" if len(held) == 1 else "the first"
    command = holdfast_command("resume", path, held[0])
    text = f"{error}. {paused} in it: {command} resumes {one}"
    return ExperimentInUse(text, error.path, error.holder)


def _take_ray_names(path: str, settings: Settings) -> None:
    """Make `import ray` mean holdfast in the trainable's module if it did in the script, or if Ray
    is not installed."""
    file = _recorded(path, settings)
    if (file is not None and file.has_ray_names) or find_spec("ray") is None:
        ray_path.activate()


def _find_modules(path: str, settings: Settings) -> bool:
    """Let modules be found where the script found them, behind those of the current directory.
    Returns whether that is anywhere else."""
    if (file := _recorded(path, settings)) is None:
        return False
    known = recorded_code(file).get("modules", "").split(os.pathsep)
    added = [one for one in known if one not in sys.path and os.path.isdir(one)]
    sys.path[1:1] = added
    return bool(added)


def _recorded(path: str, settings: Settings) -> TunerFile | None:
    """The experiment's tuner.pkl on this machine, for its plain values; None for a path that
    names no experiment."""
    with suppress(TuneError, OSError):  # Tuner.restore raises it, too
        return OpenedExperiment.at(path, None, settings, os.environ).tuner_file(trusted=False)
    return None


def _restored(settings: Settings, path: str, *arguments: Any, **given: Any) -> Any:
    """Tuner.restore. Raises ModuleMissing if the stored trainable needs a module that is not found
    from here, and the errors of Tuner.restore."""
    from holdfast.api.tuner import Tuner
    from holdfast.experiment.user_objects.tuner_file import BrokenTunerFile

    try:
        return Tuner.restore(path, *arguments, **given)
    except BrokenTunerFile as error:
        missing = error.__cause__
        if not isinstance(missing, ModuleNotFoundError):
            raise
        if given["trusted"] and _find_modules(path, settings):  # as the download says
            return _restored(settings, path, *arguments, **given)
        raise ModuleMissing(
            f"{error.fault}: your modules are looked for in {os.getcwd()}, in PYTHONPATH and "
            f"where the script was. Run this command where it is now, or set PYTHONPATH to the "
            f"folder of the module {missing.name!r}"
        ) from error


def _check_code(trainable: Any, given: argparse.Namespace) -> None:
    """Print that the script has changed whose stored code the trials run.

    Raises InvalidConfig if failed trials would run again with the code that failed.
    """
    retries = given.resume_errored or given.restart_errored
    if retries and isinstance(trainable, CommandTrainable):
        print(
            "note: the trials run the command that the experiment stored. A sweep file that has "
            "changed since is used by `holdfast run FILE`",
            file=sys.stderr,
        )
    script = script_of(trainable)  # None for a module: its present code runs
    if script is None or not has_changed_in(trainable, script):
        return
    name = name_for_shell(trainable)
    again = f"start {script.name} again"
    if not retries:
        more = f", or pass --trainable {quoted(name)}" if name else ""
        print(
            f"warning: {place_of(trainable)} has changed since the experiment stored it: the "
            f"trials run the stored code. To run the new code, {again}{more}",
            file=sys.stderr,
        )
        return
    errored = resume_config_of(given).errored
    command = resume_command(given.path, f"--{errored}-errored", "--trainable", name)
    config = f"resume_config=ResumeConfig(errored={errored!r})"
    raise InvalidConfig(
        f"{place_of(trainable)} has changed since the experiment stored it, and the failed trials "
        f"would run the stored code. To run the new code:\n  "
        + (command if name else f"{again}, with fit(resume='auto', {config})")
    )


def resume_config_of(given: argparse.Namespace) -> ResumeConfig:
    """The trials that resume."""
    return ResumeConfig(
        unfinished="skip" if given.skip_unfinished else "resume",
        errored=_choice(resume=given.resume_errored, restart=given.restart_errored),
        finished=_choice(resume=given.resume_finished, restart=given.restart_finished),
    )


def _choice(*, resume: bool, restart: bool) -> str:
    return "resume" if resume else "restart" if restart else "skip"


def stop_of(given: argparse.Namespace) -> dict[str, float] | None:
    """The bounds of --stop, None without any. Raises InvalidConfig."""
    bounds: list[tuple[str, float]] = given.stop or []
    names = [name for name, _ in bounds]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidConfig(f"--stop is passed twice for {', '.join(twice)}: one bound each")
    says_more = bounds or given.num_samples is not None or given.time_budget is not None
    if given.extend and not says_more:
        raise InvalidConfig(
            "--extend: say by how much, with --num-samples N, --stop KEY=VALUE or --time-budget T"
        )
    return dict(bounds) or None


def _named(text: str) -> Any:
    """The object that `module:name` or `file.py:name` names. Raises InvalidConfig."""
    module, mark, name = text.rpartition(":")
    if not (module and mark and name):
        raise InvalidConfig(
            f"--trainable must be module:name or file.py:name, as in train:train_digits or "
            f"train.py:train_digits; not {text!r}"
        )
    # A script without `if __name__ == "__main__":` would start a run at its import.
    started_by_import.refuse_from_now_on()
    try:
        found: Any = _imported(module)
        for part in name.split("."):
            found = getattr(found, part)
    except started_by_import.StartedByImport as error:
        raise InvalidConfig(f"--trainable {text}: {error}") from error
    except (ImportError, AttributeError) as error:
        if module.endswith(".py"):
            raise InvalidConfig(f"--trainable {text}: {error}") from error
        raise InvalidConfig(
            f"--trainable {text}: {error}. Modules are looked for in {os.getcwd()} and among "
            f"installed packages"
        ) from error
    return found


def _imported(module: str) -> Any:
    """The module of this name, or that of a script, whose `if __name__ == "__main__":` part does
    not run. Raises ImportError, InvalidConfig."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    file = Path(module).resolve()
    if not file.is_file():
        raise ImportError(f"there is no file {file}")
    sys.path.insert(0, str(file.parent))
    try:
        found = importlib.import_module(file.stem)
    except started_by_import.StartedByImport as error:
        if error.module != file.stem:
            raise
        raise InvalidConfig(
            f"{file.name} calls fit() when it is imported: put the call under `if __name__ == "
            f'"__main__":`, or start the script itself'
        ) from error
    if not (found.__file__ and Path(found.__file__).samefile(file)):
        raise ImportError(f"another module is named {file.stem}: {found.__file__}")
    return found
