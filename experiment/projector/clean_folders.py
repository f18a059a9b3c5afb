"""Knows which trials' folders need not be looked at: nothing can be left in them.

A run of 100,000 trials has 100,000 folders. Only processes of a trial that is not final, and those
that end its checkpoints, leave something in its folder. So the folder of a final trial is swept
once, and a snapshot names the others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.leftovers import folders_of, locked_at, sweep
from holdfast.scheduler.machine import Machine
from holdfast.syncer.uploader.lock import LockLost
from holdfast.trial.trial import Trial


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
