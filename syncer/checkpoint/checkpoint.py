"""The checkpoint as users know it: a directory, on this machine or in some storage."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import finalize

from holdfast.syncer.checkpoint.reading import reading
from holdfast.syncer.errors import (
    CheckpointGone,
    ManifestMismatch,
    NotStored,
    os_errors,
    short,
)
from holdfast.syncer.files.durable import TEMPORARY, remove_tree, unique, write_atomic
from holdfast.syncer.files.tree import METADATA_NAME, check_directory, walk
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import parse_table, read_small
from holdfast.trees import try_to_delete

if TYPE_CHECKING:
    import pyarrow.fs

_DICT: Final = "dict_checkpoint.pkl"  # the name that Ray gives it


class Checkpoint:
    """A reference to a directory of files, whose content is the user's.

    Args:
        path: the directory: a local path, a URI such as `s3://bucket/prefix`, or, with a
            `filesystem`, a path in it without a protocol.
        filesystem: a `pyarrow.fs.FileSystem` or fsspec filesystem; None for that of `path`.
    """

    @short
    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        self._location = Location.resolve(path, filesystem, {})

    @classmethod
    @short
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """Refer to a local directory; nothing is copied.

        `tune.report` copies it into the trial's directory; then you may delete it. A directory
        from `tune.staging_directory()`, which is on the trial's own disk, is renamed instead: such
        a checkpoint is never copied, however large it is, and the directory is no longer yours.

        Raises DirectoryMissing (a FileNotFoundError) if it does not exist.
        """
        checkpoint = cls(path)
        if checkpoint._location.local_path is not None:
            check_directory(checkpoint._location.local_path, "make a checkpoint of")
        return checkpoint

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """`Checkpoint(uri)`, as it was called up to Ray 2.6."""
        return cls(uri)

    @classmethod
    @short
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """A checkpoint of one file with this dict, which cloudpickle writes: the way of Ray up to
        2.6. Its directory is temporary, and is removed with this object.

        Raises StorageError.
        """
        import tempfile

        import cloudpickle

        with os_errors("write a checkpoint to", tempfile.gettempdir()):
            checkpoint = cls._temporary()
            Path(checkpoint.path, _DICT).write_bytes(cloudpickle.dumps(data))
        return checkpoint

    @classmethod
    def _temporary(cls) -> Self:
        """A checkpoint in a new temporary directory, which is removed with this object."""
        import tempfile

        folder = tempfile.mkdtemp(prefix="checkpoint-")
        checkpoint = cls(folder)
        finalize(checkpoint, _remove, folder, os.getpid())
        return checkpoint

    def to_dict(self) -> dict[str, Any]:
        """The dict of `from_dict`. It is unpickled, which can run code: call this only for a
        checkpoint that you trust.

        Raises FileNotFoundError for any other checkpoint, and StorageError.
        """
        import cloudpickle

        with self.as_directory() as folder:
            path = Path(folder, _DICT)
            if not path.exists():
                raise FileNotFoundError(
                    f"{self} has no {_DICT}: it was not made by Checkpoint.from_dict(). Read its "
                    "files in `with checkpoint.as_directory() as folder`"
                )
            found: dict[str, Any] = cloudpickle.loads(path.read_bytes())
        return found

    @classmethod
    def from_location(cls, location: Location) -> Self:
        """Refer to a folder at a resolved location, including its credentials."""
        checkpoint = cls.__new__(cls)
        checkpoint._location = location
        return checkpoint

    @property
    def path(self) -> str:
        """The path in `filesystem`; absolute if local, `bucket/prefix/...` in object storage."""
        return self._location.path

    @property
    def value(self) -> str:
        """A folder with its files, for scripts for Ray up to 2.6; `dir_or_data`, too."""
        return self.to_directory()

    dir_or_data = value

    @property
    @short
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """The pyarrow filesystem of the directory, created on first use."""
        return self._location.arrow()[0]

    @property
    def uri(self) -> str | None:
        """The directory as text to paste anywhere, without credentials: `Checkpoint(uri)` on
        another machine is the same checkpoint.

        A local directory is its absolute path, which pyarrow and fsspec take as well (fsspec does
        not decode the %20 of a `file://` URI). For S3 it is `s3://bucket/...`, with the query that
        names a custom endpoint. None for a filesystem object that no URI describes: use `path` and
        `filesystem`.
        """
        return self._location.uri

    @property
    def location(self) -> Location:
        """The location, with the credentials to reach it."""
        return self._location

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files as a local directory to read, for the duration of the `with` block.

        A local checkpoint is used in place; meanwhile no run on this machine removes it, even if
        it is superseded. A remote one is downloaded and verified, once per machine for all
        processes that use it at the same time; the last one to leave removes the copy.

        Raises CheckpointGone (a FileNotFoundError) if a run has removed it, ManifestMismatch or
        another StorageError.
        """
        with ExitStack() as held:
            # Exceptions of the user's block pass unchanged.
            yield self._held_open(held)

    @short
    def _held_open(self, held: ExitStack) -> str:
        local = self._location.local_path
        if local is not None:
            held.enter_context(reading(local, "open"))
            return local
        from holdfast.syncer.checkpoint.download import shared_copy

        return str(held.enter_context(shared_copy(self._location)))

    @short
    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write a copy to a local directory (by default a new temporary one).

        An existing directory keeps its other files. The manifest is not part of the copy.

        Returns the path. Raises CheckpointGone, ManifestMismatch or another StorageError.
        """
        if path is None:
            import tempfile

            path = Path(tempfile.gettempdir()) / f"checkpoint-{unique()}"
        target = Path(os.path.abspath(os.path.expanduser(path)))
        partial = target.parent / f"{TEMPORARY}{unique()}"
        try:
            with os_errors("write a checkpoint to", str(target)):
                target.parent.mkdir(parents=True, exist_ok=True)
                self._copy_to(partial)
                _merge(partial, target)
        finally:
            if partial.exists():  # on a read-only disk, to try would hide the error
                remove_tree(partial)
        return str(target)

    @short
    def get_metadata(self) -> dict[str, Any]:
        """The dict that `set_metadata` stored; empty if there is none. Raises StorageError."""
        try:
            data = self._read_metadata()
        except CheckpointGone:
            raise
        except NotStored:
            return {}
        try:
            metadata = parse_table(data)
        except ValueError as error:
            problem = f"{METADATA_NAME} is not JSON ({error})"
            raise ManifestMismatch(self._location.public, [problem]) from error
        return metadata

    @short
    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Store a dict of JSON values with the files, replacing the previous one.

        Raises TypeError for values that JSON cannot hold, and StorageError.
        """
        if not isinstance(metadata, dict):
            raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
        try:
            data = json.dumps(metadata).encode()
        except (TypeError, ValueError) as error:
            raise TypeError(f"checkpoint metadata must be JSON values: {error}") from error
        self._write_metadata(data)

    @short
    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Add or replace these keys of the metadata. Raises like `set_metadata`."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def _copy_to(self, target: Path) -> None:
        local = self._location.local_path
        if local is not None:
            from holdfast.syncer.checkpoint.staging import copy_tree

            with reading(local, "copy"):
                copy_tree(local, target)
            return
        from holdfast.syncer.checkpoint.download import bring

        bring(self._location, target)

    def _read_metadata(self) -> bytes:
        local = self._location.local_path
        if local is None:
            from holdfast.syncer.checkpoint.download import with_store

            return with_store(self._location, lambda store: store.read(METADATA_NAME))
        operation = "read the metadata of"
        with reading(local, operation), os_errors(operation, local):
            return read_small(Path(local, METADATA_NAME))

    def _write_metadata(self, data: bytes) -> None:
        local = self._location.local_path
        if local is None:
            from holdfast.syncer.checkpoint.download import with_store

            with_store(self._location, lambda store: store.put(METADATA_NAME, data))
            return
        check_directory(local, "write the metadata of")
        with os_errors("write the metadata of", local):
            write_atomic(Path(local, METADATA_NAME), data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self._location == other._location

    def __hash__(self) -> int:
        return hash(self._location.public)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._location.public!r})"


def _remove(folder: str, process: int) -> None:
    if process == os.getpid():  # not a child that it forked
        try_to_delete(folder)


def _merge(partial: Path, target: Path) -> None:
    """Move a complete copy into place; file by file if the directory already exists."""
    if not target.exists():
        os.rename(partial, target)
        return
    check_directory(target, "write a checkpoint to")
    for found in walk(partial, "write a checkpoint to"):
        destination = target / found.name
        if found.is_dir:
            destination.mkdir(exist_ok=True)
        else:
            os.replace(found.path, destination)
