"""The environment of a trial's command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from holdfast.experiment.worker.command.protocol import MARK
from holdfast.experiment.worker.session import Session

CONFIG = "config.json"
# W&B's agent names such a file to its trials, and wandb.init() takes its config from there.
WANDB_CONFIG = "wandb.yaml"
CHECKPOINTS = "checkpoints"


def is_torchrun(words: Sequence[str]) -> bool:
    """True for a command that starts several processes which print."""
    return any("torchrun" in word or "torch.distributed" in word for word in words)


def for_words(
    words: Sequence[str], environ: Mapping[str, str], here: str, folder: Path
) -> dict[str, str]:
    """The environment in which `-m` finds a module below `here`, and torchrun marks what its ranks
    print, for `Ranks`. These have unbuffered output; without it, its own would come late."""
    made = dict(environ)
    if any(_is_module(here, *both) for both in pairwise(words)):
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), here]))
    if not is_torchrun(words):
        return made
    tee = {"PET_TEE": "1", "PET_LOG_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
    return {**tee, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": MARK, **made}


def python_of(environ: Mapping[str, str]) -> str:
    """The Python of scripts: the first on the PATH, else this one."""
    return "python" if shutil.which("python", path=environ.get("PATH")) else sys.executable


def _is_module(here: str, option: str, name: str) -> bool:
    """True for `-m` and a module below `here`."""
    path = os.path.join(here, *name.split("."))
    return option == "-m" and (os.path.isdir(path) or os.path.isfile(f"{path}.py"))


def variables(session: Session, folder: Path, source: str) -> dict[str, str]:
    assignment = session.assignment
    return {
        "HOLDFAST_CONFIG": str(folder / CONFIG),
        "WANDB_SWEEP_PARAM_PATH": str(folder / WANDB_CONFIG),
        "HOLDFAST_CHECKPOINT_DIR": str(folder / CHECKPOINTS),
        "HOLDFAST_RESUME_DIR": source,
        "HOLDFAST_ITERATION": str(session.iteration),
        "HOLDFAST_TRIAL_ID": assignment.trial_id,
        "HOLDFAST_TRIAL_NAME": assignment.trial_name,
        "HOLDFAST_TRIAL_DIR": session.folder,
        "HOLDFAST_ATTEMPT": str(assignment.attempt),
    }
