"""Checks that the files of an experiment are inside its folder, not behind a link.

A valid name can still be a symbolic link: writing `result.json` would then write the linked file.
Users' own files in a trial's folder may be links, because holdfast only reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.experiment.folder.layout import (
    CONTROL,
    JOURNAL,
    LOCK,
    MIRROR_AT,
    MIRROR_OF,
    STAGING,
    Layout,
    is_checkpoint,
    is_the_experiments,
    is_trial_record,
    log_names_of,
    of_rank_0,
)
from holdfast.names import printable
from holdfast.scheduler.machine import Machine
from holdfast.syncer.artifacts.settings import ENDED_NAME, INDEX_NAME
from holdfast.trial.errors import TuneError
from holdfast.trial.trial import Trial


class LeadsElsewhere(TuneError, ValueError):
    """A file or folder of an experiment is a link, a pipe or a device; `path` names it."""

    def __init__(self, path: str) -> None:
        what = "a link" if os.path.islink(path) else "not a file or a folder"
        super().__init__(
            f"{printable(path)} is {what}: holdfast would read or write something outside the "
            "experiment. Replace it with the file or folder itself, or remove it"
        )
        self.path = path


def check_enclosed(
    layout: Layout, dirnames: Iterable[str] = (), log_names: Iterable[str] = ()
) -> None:
    """Check everything that a run writes or removes. Raises LeadsElsewhere, OSError.

    10,000 trials take 0.2 s.
    """
    folders, logs = frozenset(dirnames), frozenset(log_names)
    # The run itself looks at what has the name of its socket.
    _check(layout.root, lambda name: name in folders or (is_written(name) and name != CONTROL))
    _check(layout.journal, lambda name: True)
    for name in folders:
        _check(layout.root / name, lambda name: _is_the_trials(name, logs))


def check_enclosed_trials(
    layout: Layout, machine: Machine, trials: Iterable[Trial] | None = None
) -> None:
    """Check the experiment with the folders of these trials, None for all.

    A restore checks those that its run writes to. What else writes into the folder of a trial of
    an earlier run looks itself whether that is a link: the projector when it begins the trial's
    files, the removal of a superseded checkpoint, and the sweep for leftovers.

    Raises LeadsElsewhere, OSError.
    """
    log_names = log_names_of(machine.spec.options.get("log_to_file", False))
    checked = machine.trials.values() if trials is None else trials
    check_enclosed(layout, (trial.spec.dirname for trial in checked), log_names)


def check_folder(folder: Path) -> None:
    """Check only the folder of a trial. Raises LeadsElsewhere."""
    if os.path.islink(folder):
        raise LeadsElsewhere(str(folder))


def is_written(name: str) -> bool:
    """Whether a run writes this name into the experiment's own folder on this machine, in addition
    to the folders of trials."""
    ours = (JOURNAL, CONTROL, MIRROR_OF, MIRROR_AT, INDEX_NAME, ENDED_NAME)
    is_one = name in ours or name.startswith(LOCK)
    return is_one or is_the_experiments(name)


def _is_the_trials(name: str, logs: frozenset[str]) -> bool:
    of_first = of_rank_0(name)
    is_one = is_trial_record(of_first) or of_first in logs
    return is_one or is_checkpoint(name) or name in (STAGING, INDEX_NAME)


def _check(folder: Path, is_written: Callable[[str], bool]) -> None:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                    continue
                if is_written(entry.name):
                    raise LeadsElsewhere(entry.path)
    except (FileNotFoundError, NotADirectoryError):
        return
