"""What a run does that resumes an experiment with other code than its trials ran."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.experiment.folder.shell_command import holdfast_command, module_path
from holdfast.experiment.progress.wording import retry_way
from holdfast.experiment.user_objects.code import (
    CODE,
    differ,
    digest_of,
    name_in_script,
    place_of,
    recorded_code,
    script_of,
)
from holdfast.experiment.user_objects.pickling import SCRIPT, NotPicklable
from holdfast.experiment.user_objects.stored_objects import StoredField, stored
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.experiment.worker import wrap
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.scheduler.machine import Machine
from holdfast.text.values import counted
from holdfast.trial.trial import Status, Trial
from holdfast.trial.tuning import ResumeConfig


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
    module = sys.modules.get(wrap.module_of(trainable))
    file = None if isinstance(trainable, TrainLoop) else getattr(module, "__file__", None)
    found = module_path().split(os.pathsep)
    if module is not None and file is not None and module.__name__ not in SCRIPT:
        root = Path(os.path.abspath(file)).parents[module.__name__.count(".")]
        # Those of an environment change with it.
        is_installed = root.name in ("site-packages", "dist-packages")
        found += [str(root)] * (str(root) in sys.path and not is_installed)
    return os.pathsep.join(dict.fromkeys(filter(None, found)))


def has_changed(trainable: Any, file: TunerFile) -> bool:
    """Whether the trials ran other code, as far as known."""
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
    return is_inside or wrap.module_of(trainable) in SCRIPT


def _has_rows(machine: Machine) -> bool:
    return any(trial.row is not None for trial in machine.trials.values())


def _failed(machine: Machine) -> list[Trial]:
    return [trial for trial in machine.trials.values() if trial.status is Status.ERROR]
