"""Finds trials whose files the projector could not write completely."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.folder.shell_command import holdfast_command
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import TuneError
from holdfast.trial.readable import listed
from holdfast.trial.trial import Trial

_SHOWN = 5


def lacking(layout: Layout, trials: Iterable[Trial]) -> str:
    """A warning about trials whose newest row is not in result.json; "" if there are none."""
    folders = [trial.spec.dirname for trial in trials if not _has_newest_row(layout, trial)]
    if not folders:
        return ""
    return (
        f"{RESULTS} and the other files of {_count(len(folders))} are missing or incomplete: "
        f"{listed(folders, _SHOWN)}. The journal has every row. To write the files from "
        f"it, restore the experiment or run "
        f"{holdfast_command('doctor', 'repair', str(layout.root))}"
    )


def _count(trials: int) -> str:
    return f"{trials} trial{'s' * (trials != 1)}"


def _has_newest_row(layout: Layout, trial: Trial) -> bool:
    if trial.row is None:
        return True
    location = Location.resolve(layout.trial(trial.spec), None, {})
    try:
        row = TrialFolder.at(location).last_row()
    except (OSError, TuneError):
        return False
    return row is not None and row.get("training_iteration") == trial.iteration
