"""Writes results to files: tables as CSV, Parquet or JSON, and a checkpoint with its metrics.

A checkpoint is copied as a whole or not at all: its bytes are compared with its manifest, and are
on the disk before the directory appears.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import PARAMS
from holdfast.experiment.records.rows import encode, flatten_row
from holdfast.names import printable
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.manifest import FileFact
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError, os_errors
from holdfast.syncer.files.durable import (
    TEMPORARY,
    fsync_dir,
    new_file_for,
    remove_tree,
    unique,
    write_atomic,
)
from holdfast.syncer.files.tree import METADATA_NAME
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.values import finite, readable

if TYPE_CHECKING:
    import pyarrow


FORMATS = ("csv", "parquet", "json")


def format_of(path: str | None) -> str:
    """The format that a file name's ending indicates; CSV if it has none."""
    return "csv" if path is None else path.rpartition(".")[2].lower()


def write_table(
    lines: Sequence[Mapping[str, Any]], path: str | None, form: str, *, replace: bool = False
) -> None:
    """Write the lines in one of FORMATS to a file, or to stdout if `path` is None.

    A terminal gets no control characters; a file and a pipe get every byte. The file appears when
    it is complete. JSON is one list of objects. Raises InvalidConfig if the file exists, unless
    `replace`, or its directory does not; OSError.
    """
    if path is None:
        _print(lines, form)
        return
    if os.path.exists(path) and not replace:
        raise InvalidConfig(f"{path} already exists: pass another name, or --force to replace it")
    if not os.path.isdir(folder := os.path.dirname(path) or "."):
        raise InvalidConfig(f"there is no directory {folder} for {path}: create it first")
    with new_file_for(path) as file:
        _write(lines, file, form)


def _print(lines: Sequence[Mapping[str, Any]], form: str) -> None:
    sys.stdout.flush()
    if not sys.stdout.isatty():
        _write(lines, sys.stdout.buffer, form)
        return
    shown = io.BytesIO()
    _write(lines, shown, form)
    print(printable(shown.getvalue().decode(), keep="\n"), end="", flush=True)


def _write(lines: Sequence[Mapping[str, Any]], file: IO[bytes], form: str) -> None:
    if form == "json":
        text = ",\n".join(encode(finite(line)) for line in lines)
        file.write(f"[{text}]\n".encode())
        return
    table = arrow_table(lines)
    if form == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, file)
    else:
        from pyarrow import csv

        csv.write_csv(table, file)


def arrow_table(lines: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """A table with a row for each of `lines`, and a column for each name in the order of
    appearance.

    Nested dicts are columns `a/b`, other containers JSON text, missing values null. A column with
    values of several types (other than whole and other numbers) has them as text.
    """
    import pyarrow

    flat = [flatten_row(line) for line in lines]
    names = dict.fromkeys(name for line in flat for name in line)
    columns = {name: _column([line.get(name) for line in flat]) for name in names}
    return pyarrow.table(columns)


def _column(values: list[Any]) -> pyarrow.Array:
    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return pyarrow.array([_text(value) for value in values], pyarrow.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else encode(value)


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
