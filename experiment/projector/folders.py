"""Removes leftovers of processes of earlier runs: half-written and half-removed files, and
checkpoints that no record names.

A leftover has not changed since this run took the lock: no process of an earlier run lives once
this run has written its name into the lock.

A run of 100,000 trials has 100,000 folders. Only processes of a trial that is not final, and those
that end its checkpoints, leave something in its folder. So the folder of a final trial is swept
once, and a snapshot names the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.experiment.folder.layout import CHECKPOINT_PREFIX, JOURNAL, STAGING, Layout
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint.reading import BeingRead, unread
from holdfast.syncer.files.durable import (
    put_aside,
    remove_leftovers_among,
    remove_leftovers_in,
    remove_tree,
)
from holdfast.syncer.files.tree import MANIFEST_NAME, is_ours
from holdfast.syncer.uploader.lock import LockLost
from holdfast.trees import delete_tree
from holdfast.trial.trial import Trial, checkpoint_number


def locked_at(layout: Layout) -> float:
    """When this run took the lock (seconds since 1970, by the file system's clock). Raises
    OSError."""
    return os.stat(layout.lock).st_mtime


def remove_leftovers(layout: Layout) -> None:
    """Remove those in the experiment's own folder and its journal's. Raises OSError."""
    before = locked_at(layout)
    for folder in (layout.root, layout.journal):
        remove_leftovers_in(folder, before)


def folders_of(layout: Layout) -> Iterator[Path]:
    """The folders in that of the experiment, except the journal's. Raises OSError."""
    found = _folders_among(_listed(layout.root))
    return (folder for folder in found if folder.name != JOURNAL)


def sweep(folder: Path, before: float, trial: Trial | None = None) -> bool:
    """Remove the leftovers in the folder of a trial; return whether none is left, or is to be
    expected from what this run still does with the trial's checkpoints.

    Checkpoints of a final `trial` that no record names go, too: their workers died before the
    report was acknowledged. Those of other trials are removed when they run again. A checkpoint
    with a manifest was recorded; only its record is lost, so it stays. Raises OSError.
    """
    if folder.is_symlink():
        return False  # nothing is removed behind a link
    found = _listed(folder)
    is_clean = remove_leftovers_among(found, before)
    if trial is not None:
        is_clean &= all(checkpoint.committed for checkpoint in trial.checkpoints)
    for below in _folders_among(found):
        if below.name == STAGING:
            is_clean &= _sweep_staging(below, before)
        elif below.name.startswith(CHECKPOINT_PREFIX):
            is_clean &= _sweep_checkpoint(below, before, trial)
    return is_clean


def _sweep_staging(folder: Path, before: float) -> bool:
    is_clean = True
    for staged in _folders_among(_listed(folder)):
        if staged.stat().st_ctime < before:
            remove_tree(staged)
        else:
            is_clean = False
    return is_clean


def _sweep_checkpoint(folder: Path, before: float, trial: Trial | None) -> bool:
    is_clean = remove_leftovers_in(folder, before)
    number = checkpoint_number(folder.name)
    if number is None or trial is None or not trial.status.is_final or not is_ours(folder):
        return is_clean
    if number >= trial.next_checkpoint:
        return (folder / MANIFEST_NAME).exists() or _remove_unless_read(folder, before)
    # Otherwise it is superseded: the uploader removes it.
    return is_clean and any(checkpoint.index == number for checkpoint in trial.checkpoints)


def _remove_unless_read(directory: Path, before: float) -> bool:
    with suppress(BeingRead, FileNotFoundError):  # the next run removes it, or it is gone
        with unread(directory):
            if directory.stat().st_ctime >= before:
                return False
            aside = put_aside(directory)
        if aside is not None:
            delete_tree(aside)
        return True
    return False


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _folders_among(entries: Iterable[os.DirEntry[str]]) -> Iterator[Path]:
    return (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


class CleanFolders:
    """The final trials with clean folders, each as the value that it had when it was swept.

    An event that concerns a trial makes another value of it: then its folder counts as unswept.
    """

    def __init__(
        self, layout: Layout, check_ownership: Callable[[], None], *, remembers: bool
    ) -> None:
        """`check_ownership` raises LockLost if another run owns the experiment: then nothing is
        removed. Without `remembers`, no folder counts as clean for a later run."""
        self._layout = layout
        self._check_ownership = check_ownership
        self._remembers = remembers
        self._clean: dict[str, Trial] = {}
        self._swept: dict[str, Trial] = {}

    def begin(self, machine: Machine, clean: Iterable[str]) -> None:
        """Start with these trials, by their ids, whose folders an earlier process has swept."""
        self._clean = {trial_id: machine.trials[trial_id] for trial_id in clean}

    def unswept(self, machine: Machine) -> tuple[str, ...] | None:
        """The names of the other trials' folders; None for all."""
        if not self._clean:
            return None
        return tuple(trial.spec.dirname for trial in self._others(machine))

    def sweep_all(self, machine: Machine) -> None:
        """Sweep every folder that is not clean. If none is, also folders that are no trial's of
        this experiment: another one may have ended here."""
        with suppress(OSError, LockLost):  # leftovers do no harm
            self._check_ownership()
            if not self._clean:
                dirnames = {trial.spec.dirname for trial in machine.trials.values()}
                self._sweep_strangers(dirnames)
        self._sweep(machine, self._others(machine))

    def sweep_ended(self, machine: Machine, *, again: bool = False) -> None:
        """Sweep the folders of trials that have ended since they were swept; `again`, at the end:
        also those that were not clean then."""
        if not (self._remembers or again):
            return
        again = again and self._remembers
        self._sweep(
            machine,
            (
                trial
                for trial in self._others(machine)
                if trial.status.is_final
                and (again or self._swept.get(trial.trial_id) is not trial)
                and trial.trial_id not in machine.placement.holds  # its worker lives
            ),
        )

    def _others(self, machine: Machine) -> Iterable[Trial]:
        clean = self._clean
        return (
            trial for trial in machine.trials.values() if clean.get(trial.trial_id) is not trial
        )

    def _sweep_strangers(self, known: Container[str]) -> None:
        before = locked_at(self._layout)
        for folder in folders_of(self._layout):
            if folder.name not in known:
                sweep(folder, before)

    def _sweep(self, machine: Machine, trials: Iterable[Trial]) -> None:
        waiting = list(trials)
        if not waiting:
            return
        with suppress(OSError, LockLost):
            self._check_ownership()
            before = locked_at(self._layout)
            for trial in waiting:
                self._sweep_one(trial, before, machine)

    def _sweep_one(self, trial: Trial, before: float, machine: Machine) -> None:
        with suppress(OSError):
            is_clean = sweep(self._layout.trial(trial.spec), before, trial)
            self._swept[trial.trial_id] = trial
            has_worker = trial.trial_id in machine.placement.holds
            if is_clean and self._remembers and trial.status.is_final and not has_worker:
                self._clean[trial.trial_id] = trial
