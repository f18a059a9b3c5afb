"""Copies the checkpoint of a trial to a directory of the user's: all of it, or nothing.

The bytes are compared with the checkpoint's manifest, and are on the disk before the directory
appears.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import PARAMS
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.manifest import FileFact
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError, os_errors
from holdfast.syncer.files.durable import (
    TEMPORARY,
    fsync_dir,
    remove_tree,
    unique,
    write_atomic,
)
from holdfast.syncer.files.tree import METADATA_NAME
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.values import finite, readable

METRICS = "metrics.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedCheckpoint:
    """The directory, its number of files, and their size."""

    directory: str
    files: int
    size_bytes: int


def check_target(path: str) -> Path:
    """The absolute path of a directory that may be written. Raises InvalidConfig if it exists and
    is not an empty directory."""
    target = Path(os.path.abspath(os.path.expanduser(path)))
    if os.path.islink(target) or (target.exists() and not target.is_dir()):
        raise InvalidConfig(f"{path} is not a directory: name a new one")
    if target.is_dir() and any(target.iterdir()):
        raise InvalidConfig(f"{path} is not empty: name a new directory, or empty this one")
    return target


def copy_checkpoint(
    checkpoint: Checkpoint, path: str, *, about: Mapping[str, Any] | None = None
) -> CopiedCheckpoint:
    """Copy the files of a checkpoint, without holdfast's manifest, to the directory `path`.

    `about` are further files, by name, with their content as JSON values. A name that the
    checkpoint has itself gets the beginning `trial-`.

    Raises InvalidConfig if `path` is not a new or an empty directory, CheckpointGone,
    ManifestMismatch or another StorageError.
    """
    target = check_target(path)
    partial = target.parent / f"{TEMPORARY}{unique()}"
    try:
        _bring(checkpoint, partial, target)
        copied = manifest.hash_directory(partial)
        _check(checkpoint, copied)
        with os_errors("write", str(target)):
            for name, content in (about or {}).items():
                free = name if name not in copied.files else f"trial-{name}"
                write_atomic(partial / free, json.dumps(content, indent=1).encode())
            os.rename(partial, target)
            fsync_dir(target.parent)
    finally:
        if partial.exists():  # on a read-only disk, to try would hide the error
            remove_tree(partial)
    return CopiedCheckpoint(
        directory=str(target), files=len(copied.files), size_bytes=copied.total_bytes
    )


def _bring(checkpoint: Checkpoint, partial: Path, target: Path) -> None:
    try:
        checkpoint.to_directory(partial)
    except StorageError as error:
        if error.where == str(partial):  # the user knows only the target
            raise error.during("write a checkpoint to", str(target)) from error
        raise


def about_trial(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The files with which a model's directory explains itself."""
    return {PARAMS: finite(readable(dict(config))), METRICS: finite(readable(dict(metrics)))}


def _check(checkpoint: Checkpoint, copied: manifest.Manifest) -> None:
    """Compare with the manifest on this machine; a download has been compared already.

    A checkpoint that was never committed has none.
    """
    source = checkpoint.location.local_path
    if source is None:
        return
    try:
        expected = manifest.load(source)
    except NotStored:
        return
    wrong = [
        f"{name} differs"
        for name, fact in expected.files.items()
        if name != METADATA_NAME and not _is_same(fact, copied.files.get(name))
    ]
    if wrong:
        raise ManifestMismatch(source, wrong)


def _is_same(fact: FileFact, found: FileFact | None) -> bool:
    if found is None or found.size != fact.size:
        return False
    return fact.checksum is None or fact.checksum == found.checksum
