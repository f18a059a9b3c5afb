"""Makes one checkpoint of the parts that several ranks have staged, without copying any bytes.

The parts are next to each other on one file system. The first becomes the checkpoint, and the
files of the others are renamed into it; the target's name appears when it is complete.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.staging import Staged
from holdfast.syncer.errors import AlreadyStored, UnusableFile, os_errors
from holdfast.syncer.files.tree import STAGED_NAME

_SAMPLE = 1 << 16


@dataclass(slots=True)
class MergedCheckpoint:
    """`clashes` maps each file that several ranks saved to these ranks; the last one's is used.
    `emptied` are the folders that the files were moved from, which the caller removes."""

    staged: Staged
    clashes: dict[str, list[int]] = field(default_factory=dict)
    emptied: Sequence[Path] = ()


def merge_parts(
    parts: Mapping[int, Path],
    target: Path,
    *,
    refuse_clashes: bool = False,
    look_for_clashes: bool = True,
) -> MergedCheckpoint:
    """Move the files of all parts (by rank, in order) to `target`, which must not exist.

    With `look_for_clashes`, files of the same name are read and compared. Raises AlreadyStored,
    UnusableFile if a file of one rank has the name of another's folder or, with `refuse_clashes`,
    of another's file, or another StorageError.
    """
    with os_errors("merge", str(target)):
        return _gather(parts, target, refuses=refuse_clashes, looks=look_for_clashes)


def owners_of(parts: Mapping[int, Path]) -> dict[str, int]:
    """The files of all parts, each with the last rank that has it."""
    return {name: rank for rank, part in parts.items() for name in _files(part)}


def facts_of(path: Path, looks: bool) -> tuple[int, str]:
    """The size of a file and, if `looks`, a fingerprint of its beginning and its end. Raises
    StorageError."""
    with os_errors("read", str(path)), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not looks:
            return size, ""
        digest = hashlib.sha256(file.read(_SAMPLE))
        file.seek(max(0, size - _SAMPLE))
        digest.update(file.read(_SAMPLE))
        return size, digest.hexdigest()


def _gather(
    parts: Mapping[int, Path], target: Path, *, refuses: bool, looks: bool
) -> MergedCheckpoint:
    if os.path.lexists(target):
        raise AlreadyStored("merge", str(target), "this name already exists")
    owners: dict[str, list[int]] = {}
    for rank, part in parts.items():
        for name in _files(part):
            owners.setdefault(name, []).append(rank)
    clashes = {name: ranks for name, ranks in owners.items() if len(ranks) > 1}
    if clashes and refuses:
        raise _two_of_a_name(target, clashes)
    differing = {
        name: ranks
        for name, ranks in clashes.items()
        if looks and not _are_alike([parts[rank] / name for rank in ranks])
    }
    base, *others = parts.values()
    for part in others:
        _move_into(base, part, target)
    size = sum(os.lstat(base / name).st_size for name in owners)
    os.rename(base, target)
    staged = Staged(files=len(owners), bytes=size)
    return MergedCheckpoint(staged, clashes=differing, emptied=others)


def _are_alike(files: Sequence[Path]) -> bool:
    first, *others = files
    return all(filecmp.cmp(first, other, shallow=False) for other in others)


def _files(folder: Path) -> list[str]:
    return [
        os.path.relpath(os.path.join(above, name), folder)
        for above, _, names in os.walk(folder)
        for name in names
        if name != STAGED_NAME or above != str(folder)
    ]


def _move_into(base: Path, part: Path, target: Path) -> None:
    for above, folders, names in os.walk(part):
        below = os.path.relpath(above, part)
        inside = base / below
        for name in folders:
            if not _is_folder(inside / name):
                raise _two_kinds(target / below / name)
        for name in names:
            try:
                os.replace(os.path.join(above, name), inside / name)
            except IsADirectoryError as error:
                raise _two_kinds(target / below / name) from error


def _is_folder(path: Path) -> bool:
    """Create a folder; return False if there is a file of this name."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return path.is_dir()
    return True


def _two_kinds(path: Path) -> UnusableFile:
    return UnusableFile(
        "merge",
        str(path),
        "one rank saved a file with this name, another rank a folder",
        "Use different names on each rank",
    )


def _two_of_a_name(target: Path, clashes: Mapping[str, list[int]]) -> UnusableFile:
    name, ranks = next(iter(clashes.items()))
    more = f", and so with {len(clashes) - 1} other files" if len(clashes) > 1 else ""
    return UnusableFile(
        "merge",
        str(target / name),
        f"ranks {' and '.join(map(str, ranks))} each saved a file with this name in one "
        f"checkpoint{more}",
        "Use different names on each rank, or save common files on one rank only",
    )
