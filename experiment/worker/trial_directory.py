"""Prepares the directory of a trial for an attempt."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.experiment.folder.layout import CHECKPOINT_PREFIX, STAGING
from holdfast.experiment.worker.session import Session
from holdfast.syncer.checkpoint.reading import BeingRead, retire
from holdfast.syncer.files.tree import is_ours
from holdfast.trees import try_to_delete
from holdfast.trial.trial import checkpoint_number


class FolderUnusable(OSError):
    """The trial's folder cannot be written, whatever the trial does."""


def prepare_directory(session: Session) -> None:
    """Create the trial's directory, and remove unrecorded files of an attempt that died.

    Raises FolderUnusable.
    """
    try:
        _prepare(session)
    except OSError as error:
        why = f"{error.filename or session.folder}: {error.strerror or error}"
        raise FolderUnusable(f"cannot write the trial's folder {why}") from error


def _prepare(session: Session) -> None:
    try:
        os.mkdir(session.folder)
    except FileNotFoundError:
        os.makedirs(session.folder, exist_ok=True)
    except FileExistsError:
        pass
    else:
        return
    if session.assignment.local_rank:
        return  # the first rank on this machine does it
    directory = session.trial_dir
    _clear_staging(directory / STAGING, session.staging_root)
    for found in directory.glob(f"{CHECKPOINT_PREFIX}*"):
        number = checkpoint_number(found.name)
        if number is None or not found.is_dir():
            continue  # the user's own: they may use any name
        if number >= session.assignment.next_checkpoint and is_ours(found):
            _clear_away(found, number, session)


def _clear_staging(folder: Path, own: Path) -> None:
    """Remove staged files, except those that other ranks of this attempt have already put
    there."""
    with suppress(FileNotFoundError):
        for found in list(folder.iterdir()):
            if found != own:
                try_to_delete(found)


def _clear_away(unrecorded: Path, number: int, session: Session) -> None:
    try:
        aside = retire(unrecorded)
    except BeingRead:
        # A reader has it open: new files under this name would mix with those that it has read.
        session.pass_over(number)
    else:
        if aside is not None:
            try_to_delete(aside)  # the name is free; the next run removes it
