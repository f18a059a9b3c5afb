"""What `report()` does with a checkpoint before and after it: Train V2's upload arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.experiment.worker.session import Session
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trees import try_to_delete
from holdfast.trial.checkpoint import CheckpointUploadMode, checkpoint_number
from holdfast.trial.errors import InvalidMetrics

UploadFn = Callable[[Checkpoint, str], Checkpoint]
_has_told: list[bool] = []


def uploaded(
    session: Session,
    checkpoint: Checkpoint,
    name: str | None,
    upload: Any,
    mode: CheckpointUploadMode | str,
) -> Checkpoint:
    """The checkpoint that the user's `checkpoint_upload_fn` returns, or else the same.

    Raises InvalidMetrics if the function returns anything else, and what it raises.
    """
    if upload is None or mode == CheckpointUploadMode.NO_UPLOAD:
        return checkpoint
    found = upload(checkpoint, name or session.next_dirname)
    if not isinstance(found, Checkpoint):
        raise InvalidMetrics(
            f"checkpoint_upload_fn must return the Checkpoint that it has made, not {found!r:.100}"
        )
    return found


def tell_numbered(session: Session, name: str) -> None:
    """Say once, in one rank, that folders of checkpoints have no other names."""
    if not _has_told and session.assignment.rank == 0:
        _has_told.append(True)
        print(
            f"holdfast: checkpoint_dir_name={name!r} is not used: folders of checkpoints are "
            f"numbered, so that a restore knows what a crash has cut off",
            file=sys.stderr,
        )


def delete_local(session: Session, checkpoint: Checkpoint) -> None:
    """Remove the directory that a checkpoint was reported from, unless it is one that the trial
    keeps."""
    local = checkpoint.location.local_path
    if local is None:
        return
    path, own = Path(local).resolve(), session.trial_dir.resolve()
    inside = path.relative_to(own).parts if path.is_relative_to(own) else ("",)
    if inside and checkpoint_number(inside[0]) is None:
        try_to_delete(local)  # of a link, only the link
