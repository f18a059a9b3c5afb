"""The content of a checkpoint: names, sizes and checksums, in a file that is written last.

A directory that agrees with its manifest is complete. The checksum is SHA-256: the processors of
this decade hash it in hardware (measured: SHA-256 1,240 MiB/s, MD5 580, BLAKE2b 650, and CRC-32
2,170, all in C with the GIL released), and unlike a CRC it also shows that a file is unchanged
since the previous checkpoint and need not be uploaded again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.names import inner_path, shown
from holdfast.syncer.errors import ManifestMismatch, NotStored, UnusableFile, os_errors
from holdfast.syncer.files.durable import fsync_dir, remove_file, write_atomic
from holdfast.syncer.files.forcing import Forcing, Unforced
from holdfast.syncer.files.tree import MANIFEST_NAME, METADATA_NAME, STAGED_NAME, TreeEntry, walk
from holdfast.syncer.stores.store import parse_table, read_small

VERSION = 1
ALGORITHM = "sha256"
_MOST_BYTES = 1 << 63
_MOST_ITERATIONS = 1 << 53
_MOST_SECONDS = 1e12
_BUFFER_BYTES = 1 << 20
# Per process: after a failed fsync, a successful one must not hide the failure.
_unforced = Unforced()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFact:
    """Size in bytes, and the hexadecimal checksum; None if a manifest does not have it."""

    size: int
    checksum: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProgress:
    """The progress of a trial at a checkpoint: its iteration and training time.

    If all records of the checkpoint are lost, this identifies it.
    """

    trial_id: str
    iteration: int
    time_total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files of a directory by relative posix name, and its empty folders.

    The metadata that a user may set later (`.metadata.json`) is listed like any file, but its size
    and checksum are not checked. `progress` is None where it is damaged.
    """

    files: Mapping[str, FileFact]
    empty_folders: tuple[str, ...] = ()
    progress: TrialProgress | None = None
    version: int = VERSION

    @property
    def total_bytes(self) -> int:
        return sum(fact.size for fact in self.files.values())

    def checksum_of(self, name: str) -> str | None:
        """The checksum that the file must have; None if it may have any."""
        fact = None if name == METADATA_NAME else self.files.get(name)
        return None if fact is None else fact.checksum

    def change(self, name: str, checksum: str) -> str:
        """What is wrong with a file that has this checksum; "" if nothing is."""
        if checksum == self.checksum_of(name):
            return ""
        return f"{name} has a different {ALGORITHM} checksum: its bytes changed"

    def to_bytes(self) -> bytes:
        """The manifest as JSON bytes."""
        document: dict[str, Any] = {
            "version": self.version,
            "algorithm": ALGORITHM,
            "total_bytes": self.total_bytes,
            "files": {
                name: {"size": fact.size, "checksum": fact.checksum}
                for name, fact in sorted(self.files.items())
            },
            "empty_folders": list(self.empty_folders),
        }
        if self.progress is not None:
            document["reached"] = {
                "trial_id": self.progress.trial_id,
                "training_iteration": self.progress.iteration,
                "time_total_s": self.progress.time_total_s,
            }
        return json.dumps(document, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Decode a manifest. Raises ManifestMismatch if it is damaged or of a newer version."""
        try:
            document = parse_table(data)
            if document["version"] != VERSION:
                raise ManifestMismatch(where, [_of_other_version(document["version"])])
            files, folders = document["files"], document["empty_folders"]
            if type(folders) is not list or document["algorithm"] != ALGORITHM:
                raise ValueError(f"the checksums are {shown(document['algorithm'])}")
            manifest = cls(
                files={inner_path(name): _fact(fields) for name, fields in files.items()},
                empty_folders=tuple(inner_path(name) for name in folders),
                progress=_progress(document.get("reached")),
            )
            whole = manifest.total_bytes == document["total_bytes"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fault = f"the manifest is damaged ({error!r:.300})"
            raise ManifestMismatch(where, [fault]) from error
        if not whole:
            raise ManifestMismatch(where, ["the manifest is damaged (its total does not add up)"])
        return manifest

    def differences(self, sizes: Mapping[str, int]) -> list[str]:
        """Files that are missing or have another size. Additional files are not a problem."""
        problems = []
        for name, fact in self.files.items():
            if name not in sizes:
                problems.append(f"{name} is missing")
            elif sizes[name] != fact.size and name != METADATA_NAME:
                problems.append(f"{name} has {sizes[name]} bytes instead of {fact.size}")
        return problems


def _fact(fields: Any) -> FileFact:
    size, checksum = fields["size"], fields["checksum"]
    if type(size) is not int or not 0 <= size <= _MOST_BYTES:
        raise TypeError(f"a size must be a number of bytes, not {shown(size)}")
    if not isinstance(checksum, str | None):
        raise TypeError(f"a checksum must be text, not {shown(checksum)}")
    return FileFact(size=size, checksum=checksum)


def _progress(fields: object) -> TrialProgress | None:
    """The progress; None if it is damaged: no file depends on it, and the records may have it."""
    known: dict[str, Any] = fields if isinstance(fields, dict) else {}
    trial_id: Any = known.get("trial_id")
    iteration: Any = known.get("training_iteration")
    total: Any = known.get("time_total_s")
    if type(trial_id) is not str or type(iteration) is not int or type(total) not in (int, float):
        return None
    if not 0 <= iteration <= _MOST_ITERATIONS or not 0 <= total <= _MOST_SECONDS:
        return None
    return TrialProgress(trial_id=trial_id, iteration=iteration, time_total_s=float(total))


def _of_other_version(version: object) -> str:
    return (
        f"the manifest has version {shown(version)}, but this version of holdfast reads {VERSION}"
    )


def hash_directory(
    directory: str | os.PathLike[str], *, on_file: Callable[[int], None] = lambda count: None
) -> Manifest:
    """Read and hash every file, and force each one and every folder to the disk.

    `on_file` is called after each file with the number of files so far. Raises StorageError naming
    a file that cannot be read, DirectoryMissing, UnusableFile, and BytesLost for a file that the
    disk refused and that memory no longer has.
    """
    files: dict[str, FileFact] = {}
    folders: dict[str, str] = {}
    with Forcing(_unforced) as forcing:
        for found in walk(directory, "read"):
            if found.is_dir:
                folders[found.name] = found.path
                continue
            files[found.name] = _hash_durably(found.path, forcing)
            on_file(len(files))
    for path in (*folders.values(), os.fspath(directory)):
        with os_errors("force to the disk", path):
            fsync_dir(path)
    holding = {name.rpartition("/")[0] for name in files.keys() | folders.keys()}
    return Manifest(files=files, empty_folders=tuple(sorted(folders.keys() - holding)))


def write(
    directory: str | os.PathLike[str],
    manifest: Manifest | None = None,
    *,
    progress: TrialProgress | None = None,
) -> Manifest:
    """Hash the directory durably (unless its manifest is given) and write its manifest last."""
    hashed = manifest if manifest is not None else hash_directory(directory)
    made = replace(hashed, progress=progress)
    with os_errors("write the manifest of", os.fspath(directory)):
        write_atomic(os.path.join(directory, MANIFEST_NAME), made.to_bytes())
        remove_file(os.path.join(directory, STAGED_NAME))
    return made


def load(directory: str | os.PathLike[str]) -> Manifest:
    """The manifest of a directory. Raises NotStored if there is none, ManifestMismatch if it is
    bad."""
    path = os.path.join(directory, MANIFEST_NAME)
    with os_errors("read", path):
        try:
            data = read_small(path)
        except FileNotFoundError as error:
            cause = "there is no manifest, so the checkpoint was never committed"
            raise NotStored("read", path, cause) from error
    return Manifest.from_bytes(data, os.fspath(directory))


def verify(directory: str | os.PathLike[str], *, deep: bool = False) -> Manifest:
    """Compare a directory with its manifest: names and sizes, with `deep` also checksums.

    Returns the manifest. Raises NotStored (no manifest) or ManifestMismatch.
    """
    manifest = load(directory)
    check(directory, manifest, deep=deep)
    return manifest


def changed(directory: Path, *, committed: bool) -> str:
    """Why the bytes differ from those that were committed; "" if they do not. Reads every file.

    A checkpoint that was staged and not committed has no manifest yet, and nothing to compare
    with. Raises StorageError or OSError if the files cannot be read.
    """
    try:
        verify(directory, deep=True)
    except NotStored as error:
        return str(error) if committed or not directory.is_dir() else ""
    except (ManifestMismatch, FileNotFoundError) as error:
        return str(error)
    return ""


def check(directory: str | os.PathLike[str], manifest: Manifest, *, deep: bool = False) -> None:
    """Compare a directory with a given manifest. Raises ManifestMismatch."""
    found = {entry.name: entry for entry in walk(directory, "verify") if not entry.is_dir}
    problems = manifest.differences({n: os.stat(e.path).st_size for n, e in found.items()})
    if deep and not problems:
        problems = list(_changed(found, manifest))
    if problems:
        raise ManifestMismatch(os.fspath(directory), problems)


def _changed(found: Mapping[str, TreeEntry], manifest: Manifest) -> Iterator[str]:
    for name in manifest.files:
        if manifest.checksum_of(name) is None:
            continue
        if problem := manifest.change(name, _checksum(found[name].path)):
            yield problem


def _hash_durably(path: str, forcing: Forcing) -> FileFact:
    with os_errors("read", path):
        try:
            size, checksum = forcing.read(path, _digest)
            return FileFact(size=size, checksum=checksum)
        except PermissionError as error:
            cause = "this file cannot be read (permission denied)"
            raise UnusableFile("read", path, cause) from error


def _checksum(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return _digest(file)


def _digest(file: FileIO, on_bytes: Callable[[int], None] = lambda size: None) -> str:
    """Read a file. `on_bytes` is called with the number of bytes so far."""
    digest = hashlib.new(ALGORITHM, usedforsecurity=False)
    size = 0
    # Allocating a MiB for each of 1,000 small files would take longer than hashing them.
    expected = os.fstat(file.fileno()).st_size
    buffer = memoryview(bytearray(min(expected + 1, _BUFFER_BYTES)))
    while count := file.readinto(buffer):
        digest.update(buffer[:count])
        size += count
        on_bytes(size)
    return digest.hexdigest()
