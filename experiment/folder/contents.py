"""What is in an experiment's folder, and which folders are experiments.

A valid name can still be a symbolic link: writing `result.json` would then write the linked file.
So a run, a restore and the doctor first check that no file of holdfast's leads elsewhere
(`check_enclosed`). Users' own files in a trial's folder may be links, because holdfast only reads
them. `uploader_settings` says which files belong in storage.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from holdfast.experiment.folder import layout as names
from holdfast.experiment.folder.layout import (
    CONTROL,
    HEAD,
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
from holdfast.names import listed, printable
from holdfast.scheduler.machine import Machine
from holdfast.syncer.artifacts.settings import ENDED_NAME, INDEX_NAME, UploaderSettings
from holdfast.syncer.errors import os_errors
from holdfast.syncer.files.durable import REMOVED, fsync_dir, is_leftover
from holdfast.syncer.files.tree import CLAIMS
from holdfast.syncer.stores.location import Location
from holdfast.trees import delete_tree, refuse_mounts
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
    """True if a run writes this name into the experiment's own folder on this machine, in addition
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


_SIMILAR = 3
_SHOWN = 10


def is_experiment(folder: str) -> bool:
    """True if the folder is an experiment's, even a damaged one whose journal has no segments."""
    layout = Layout(Path(folder))
    return any(map(os.path.lexists, (layout.journal, layout.root / HEAD, layout.lock)))


def experiments_in(place: str) -> Iterator[str]:
    """The names of the experiments in a folder, in no order. Raises OSError."""
    with os.scandir(place) as found:
        yield from (
            entry.name
            for entry in found
            if not is_leftover(entry.name) and entry.is_dir() and is_experiment(entry.path)
        )


def similar_to(name: str, known: Iterable[str]) -> list[str]:
    """The names that are so similar that this one may be a typing mistake, the best first."""
    import difflib

    return difflib.get_close_matches(name, sorted(known), _SIMILAR)


def names_like(name: str, known: Iterable[str]) -> str:
    """A sentence with the names that are similar to one that does not exist, or with all."""
    names = sorted(known)
    if similar := similar_to(name, names):
        return f"Similar names: {', '.join(similar)}"
    return f"Experiments there: {listed(names, _SHOWN)}" if names else "There are none there"


def aside_of(folder: Path) -> Path:
    """The hidden name that an experiment's folder gets before it is deleted. It is the same at
    each attempt, so the next removal finds what an interrupted one has left."""
    digits = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]
    return folder.with_name(f"{REMOVED}{digits}")


def uploader_settings(
    layout: Layout,
    storage: Location | None,
    *,
    experiment_id: str,
    log_names: Sequence[str],
    artifacts: bool,
    timeout_s: float,
    disk_deadline_s: float = 0.0,
) -> UploaderSettings:
    """The settings for an experiment; `log_names` are the files with the output of trials."""
    return UploaderSettings(
        root=layout.root,
        storage=storage,
        experiment_id=experiment_id,
        journal=names.JOURNAL,
        head=names.HEAD,
        is_record=partial(_is_record, log_names),
        is_remade=_is_remade,
        is_checkpoint=names.is_checkpoint,
        private=(
            *(names.LOCK, names.LOCK_WORKERS, names.CONTROL),
            *(names.MIRROR_OF, names.MIRROR_AT, CLAIMS),
        ),
        private_inside=(names.STAGING,),
        artifacts=artifacts,
        timeout_s=timeout_s,
        disk_deadline_s=disk_deadline_s,
    )


def _is_record(log_names: Sequence[str], key: str) -> bool:
    """True if a file is uploaded without `sync_artifacts`, because holdfast writes it.

    Files deeper in a trial's folder are the user's, whatever their names.
    """
    folder, _, name = key.rpartition("/")
    if not folder:
        return names.is_the_experiments(name)
    of_rank_0 = names.of_rank_0(name)
    return "/" not in folder and (names.is_trial_record(of_rank_0) or of_rank_0 in log_names)


def _is_remade(key: str) -> bool:
    """True if the projector can rewrite the file from the journal wherever the experiment
    resumes."""
    folder, _, name = key.rpartition("/")
    logs = (names.STDOUT, names.STDERR)
    return not folder or ("/" not in folder and names.is_trial_record(name) and name not in logs)


def erase_tree(root: Path) -> None:
    """Remove a folder whose lock the caller holds. Links in it are removed, and not followed.

    Raises StorageError.
    """
    aside = aside_of(root)
    with os_errors("remove", str(root)):
        delete_tree(aside)  # of an interrupted removal
        if os.path.lexists(root):
            refuse_mounts(root)
            os.rename(root, aside)
            fsync_dir(root.parent)
            delete_tree(aside)
