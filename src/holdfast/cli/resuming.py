"""`holdfast resume`: Tuner.restore(PATH).fit() from a shell."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import started_by_import
from holdfast.cli.naming import settle
from holdfast.cli.printing import SOUND, WRONG, say_json
from holdfast.experiment.folder.layout import TUNER
from holdfast.experiment.folder.settings import Settings
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.tuning import ResumeConfig


class ModuleMissing(TuneError):
    """The trainable needs a module that is not found from the current directory."""


def resume(given: argparse.Namespace, settings: Settings) -> int:
    """Returns 0, or 1 if a trial failed. Raises the errors of Tuner.restore and fit."""
    stop = stop_of(given)
    settle(given)
    # As with `python script.py`: the user's modules are found from here.
    sys.path.insert(0, os.getcwd())
    tuner = _restored(
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
    if given.trainable is None and (script := _changed_script(tuner.trainable, given.path)):
        print(
            f"warning: {script} has changed since the experiment stored its trainable: the trials "
            f"run the stored code. To run the new code, start the script again, or pass "
            f"--trainable {Path(script).stem}:{tuner.trainable.__name__}",
            file=sys.stderr,
        )
    results = tuner.fit()
    if given.json:
        from holdfast.experiment.browse.locate import find
        from holdfast.experiment.browse.overview import experiment_as_json

        experiment = find(given.path, settings, os.environ)
        say_json(experiment_as_json(experiment, now=time.time()))
    return WRONG if results.num_errors else SOUND


def _restored(path: str, *arguments: Any, **settings: Any) -> Any:
    """Tuner.restore. Raises ModuleMissing if the stored trainable needs a module that is not found
    from here, and the errors of Tuner.restore."""
    from holdfast.experiment.api.tuner import Tuner
    from holdfast.experiment.user_objects.tuner_file import BrokenTunerFile

    try:
        return Tuner.restore(path, *arguments, **settings)
    except BrokenTunerFile as error:
        missing = error.__cause__
        if not isinstance(missing, ModuleNotFoundError):
            raise
        raise ModuleMissing(
            f"{error.fault}: your modules are looked for in {os.getcwd()} and in PYTHONPATH. Run "
            f"this command where the script is, or set PYTHONPATH to the folder of the module "
            f"{missing.name!r}"
        ) from error


def _changed_script(trainable: Any, path: str) -> str:
    """The script that a stored trainable comes from, if it has changed since; else ""."""
    if getattr(trainable, "__module__", "") != "__main__":
        return ""  # an imported module: its present code runs
    several = vars(trainable).values() if isinstance(trainable, type) else [trainable]
    codes = [getattr(inspect.unwrap(one), "__code__", None) for one in several if callable(one)]
    script = next((code.co_filename for code in codes if code is not None), "")
    try:
        is_newer = os.stat(script).st_mtime_ns > os.stat(Path(path) / TUNER).st_mtime_ns
    except OSError:
        return ""
    return script if is_newer else ""


def resume_config_of(given: argparse.Namespace) -> ResumeConfig:
    """Which trials resume."""
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
            "--extend: say by how much, with --num-samples N, --stop KEY=VALUE or --time-budget S"
        )
    return dict(bounds) or None


def _named(text: str) -> Any:
    """The object that `module:name` names. Raises InvalidConfig."""
    module, mark, name = text.partition(":")
    if not (module and mark and name):
        raise InvalidConfig(
            f"--trainable must be module:name, as in train:train_digits; not {text!r}"
        )
    # A script without `if __name__ == "__main__":` would start a run at its import.
    started_by_import.refuse_from_now_on()
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except started_by_import.StartedByImport as error:
        raise InvalidConfig(f"--trainable {text}: {error}") from error
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(
            f"--trainable {text}: {error}. Modules are looked for in {os.getcwd()} and among "
            f"installed packages"
        ) from error
    return found
