"""Takes a copy of a user's checkpoint directory, complete or invisible, at the speed of `cp`.

Bytes are copied inside the kernel: blocks are shared if the file system can (btrfs, xfs),
otherwise with `copy_file_range`, otherwise through a buffer. The copy is made under a hidden
unique name and renamed into place, so the target appears complete.

The parts of several ranks are on one file system. `merge_parts` makes one checkpoint of them
without copying bytes: the first part becomes the checkpoint, and the files of the others are
renamed into it.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    UnusableFile,
    os_errors,
)
from holdfast.syncer.files.durable import copy_bytes, opened, remove_tree, unique
from holdfast.syncer.files.tree import (
    MANIFEST_NAME,
    STAGED_NAME,
    TreeEntry,
    check_directory,
    is_ours,
    mark_staged,
    walk,
)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The number of files and their total size."""

    files: int
    bytes: int


def stage(
    source_dir: str | os.PathLike[str],
    target_dir: str | os.PathLike[str],
    *,
    staging_root: str | os.PathLike[str],
) -> Staged:
    """Copy or move the content of `source_dir` to `target_dir`, which must not exist yet.

    `staging_root` must be on the file system of the target. A source inside it that no link leads
    to is renamed and not copied. Symlinks are followed; modes and modification times are
    preserved. An empty directory is a valid checkpoint.

    Raises DirectoryMissing, UnusableFile, AlreadyStored, or another StorageError (a full disk is
    StorageUnavailable); then neither the target nor a partial copy remains.
    """
    source, target, root = (
        Path(os.path.abspath(p)) for p in (source_dir, target_dir, staging_root)
    )
    check_directory(source, "stage")
    _check_target(source, target)
    with os_errors("stage", str(source)):
        root.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_inside(source, root):
            staged = _measure(source)
            if staged is not None:
                (source / MANIFEST_NAME).unlink(missing_ok=True)
                _into_place(source, target)
                return staged
        return _copy_into_place(source, target, root)


def is_inside(path: Path, folder: Path) -> bool:
    """True if the path is really below the folder, and no link between them leads to it. Only then
    may it be moved: behind a link is something of the user's, or what another link leads to."""
    real, below = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if below not in real.parents:
        return False
    inside = real.relative_to(below).parts
    return path.parts[-len(inside) :] == inside


def copy_tree(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Staged:
    """Copy a directory's content into the new directory `target` (it must not exist).

    If it raises, the caller removes the partial copy.
    """
    check_directory(source, "stage")
    top = os.fspath(target)
    os.mkdir(top)
    files = size = 0
    folders: list[tuple[str, str]] = [(os.fspath(source), top)]
    with opened(source, os.O_DIRECTORY) as original, opened(top, os.O_DIRECTORY) as copy:
        way = _Way(original=original, copy=copy)
        for found in walk(source, "stage"):
            if found.is_dir:
                os.mkdir(found.name, dir_fd=copy)
                folders.append((found.path, f"{top}/{found.name}"))
            else:
                size += _copy_file(found, way)
                files += 1
    for known, made in reversed(folders):
        _keep_folder_attributes(known, made)
    return Staged(files=files, bytes=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Descriptors of both folders, and which modes survive the umask when a file is created.

    For 1,000 files of 4 KiB, names relative to a descriptor instead of whole paths save 7% of the
    time, and saving one chmod per file another 6% (tmpfs; more in a deeper folder).
    """

    original: int
    copy: int
    kept_modes: dict[int, bool] = field(default_factory=dict)


def _check_target(source: Path, target: Path) -> None:
    # os.rename would silently replace an empty directory.
    if os.path.lexists(target):
        raise AlreadyStored("stage", str(target), "this name already exists")
    real_source, real_parent = os.path.realpath(source), os.path.realpath(target.parent)
    if os.path.commonpath([real_source, real_parent]) == real_source:
        raise UnusableFile(
            "stage",
            str(source),
            f"the checkpoint would be stored inside itself, at {target}",
            "Pass a directory that has only the checkpoint's files",
        )


def _measure(source: Path) -> Staged | None:
    """Count the files; None if there is a link, which a rename would not resolve, or another file
    system that is mounted there."""
    files = size = 0
    device = os.lstat(source).st_dev
    for found in walk(source, "stage"):
        if found.is_link or (found.is_dir and os.lstat(found.path).st_dev != device):
            return None
        if not found.is_dir:
            size += os.lstat(found.path).st_size
            files += 1
    return Staged(files=files, bytes=size)


def _copy_into_place(source: Path, target: Path, root: Path) -> Staged:
    copy = root / unique()
    try:
        staged = copy_tree(source, copy)
        _into_place(copy, target)
    except BaseException as error:
        remove_tree(copy)
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            error.filename = str(target)  # the source may be on another disk
        raise
    return staged


def _into_place(source: Path, target: Path) -> None:
    mark_staged(source)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise AlreadyStored("stage", str(target), "this name already exists") from error
        raise


def _copy_file(found: TreeEntry, way: _Way) -> int:
    try:
        source = os.open(found.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=way.original)
    except PermissionError as error:
        raise UnusableFile("stage", found.path, "this file cannot be read") from error
    except FileNotFoundError as error:
        gone = "this file was removed while it was being copied"
        raise NotStored("stage", found.path, gone) from error
    try:
        facts = os.fstat(source)
        # The copy must be readable for us, whatever mode the user's file has.
        mode = stat.S_IMODE(facts.st_mode) | stat.S_IRUSR
        copy = os.open(found.name, _NEW, mode, dir_fd=way.copy)
        try:
            size = copy_bytes(source, copy, facts.st_size)
            _keep_mode(copy, mode, way.kept_modes)
            os.utime(copy, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        finally:
            os.close(copy)
    finally:
        os.close(source)
    return size


def _keep_mode(copy: int, mode: int, kept: dict[int, bool]) -> None:
    if mode not in kept:
        # Writing removes a set-uid bit from a non-empty file.
        kept[mode] = mode <= 0o777 and stat.S_IMODE(os.fstat(copy).st_mode) == mode
    if not kept[mode]:
        os.fchmod(copy, mode)


def _keep_folder_attributes(original: str, copy: str) -> None:
    facts = os.stat(original)
    # A folder that its owner may not write could not be renamed or get its manifest.
    os.chmod(copy, stat.S_IMODE(facts.st_mode) | stat.S_IRWXU)
    os.utime(copy, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def copy_checkpoint(source: Path, copy: Path) -> Staged:
    """Copy a checkpoint's files to a new directory; they share blocks if the file system can.

    Raises StorageError or OSError, and then leaves nothing.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged = copy_tree(source, copy)
        mark_staged(copy)
        return staged
    except BaseException:
        remove_tree(copy)
        raise


def put_in_place(copy: Path, target: Path) -> None:
    """Move the copy to `target`, replacing what an attempt left there without a report. Raises
    OSError, also if the script has a folder of its own there."""
    if is_ours(target):
        remove_tree(target)
    os.rename(copy, target)


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
