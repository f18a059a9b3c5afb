"""Objects of `holdfast.put`: each a file in one folder, in memory or on the disk, that any number
of processes can map and read without a copy.

    <root>/holdfast-objects-<user>/<process>-<random>/<object>

The process keeps the folder locked as long as it lives. So a folder without a lock belongs to a
process that has ended, for whatever reason, and can be removed.

A file:

    0   magic, format, number of buffers, length of the pickle, length of the file
    64  the pickle (protocol 5), then each buffer of it, all at multiples of 64 bytes
    at the end, offset and length of each buffer

Buffers are the data that NumPy, Arrow, pandas and other libraries with support for protocol 5
leave out of the pickle. Readers get them as read-only views of the map, so all processes share the
same memory.
"""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
import pickle
import stat
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trees import try_to_delete

_MAGIC = b"HOLDFAST"
_FORMAT = 1
_HEAD = struct.Struct("<8sIIQQ")
_SPAN = struct.Struct("<QQ")
# Packages that reading a value may import, and that are safe to import before a fork.
_PACKAGES = frozenset({"numpy", "pandas", "pyarrow"})
# A cache line, and the alignment that Arrow and vector instructions work best with.
ALIGNMENT = 64


class BadObject(ValueError):
    """The file does not contain a complete value of this format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """A value ready to be written: its pickle and its buffers.

    `packages` are those of NumPy, pandas and Arrow that reading it imports.
    """

    body: memoryview
    buffers: Sequence[memoryview]
    packages: tuple[str, ...] = ()

    @property
    def file_bytes(self) -> int:
        """The size of its file."""
        return self.table_at + len(self.buffers) * _SPAN.size

    @property
    def table_at(self) -> int:
        offsets = self.offsets
        return _aligned(offsets[-1] + len((self.body, *self.buffers)[-1]))

    @property
    def offsets(self) -> list[int]:
        """The offsets of the pickle and of each buffer."""
        found, at = [], ALIGNMENT
        for part in (self.body, *self.buffers):
            found.append(at)
            at = _aligned(at + len(part))
        return found


def pickled(value: object) -> Pickled:
    """Pickle `value` with cloudpickle. Raises what its parts raise if they cannot be pickled."""
    buffers: list[pickle.PickleBuffer] = []
    file, packages = io.BytesIO(), set[str]()
    _pickler(file, buffers.append, packages).dump(value)
    return Pickled(
        body=file.getbuffer(),
        buffers=[buffer.raw() for buffer in buffers],
        packages=tuple(sorted(packages & _PACKAGES)),
    )


def write(path: str, value: Pickled) -> None:
    """Write a new file at `path`; it is removed if this raises.

    Raises OSError; if the system can tell that there is too little room, before it writes.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _reserve(fd, value.file_bytes)
        _fill(fd, value)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def read(path: str, *, is_own: bool = False) -> Any:
    """Read the value. Its buffers are views of the file, which may be unlinked afterwards; with
    `is_own` they can be written to, and what is written is this process's alone.

    Raises OSError, BadObject, and what the value's own classes raise when they are unpickled.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < _HEAD.size:
            raise BadObject(f"{path} has only {size} bytes")
        access = mmap.ACCESS_COPY if is_own else mmap.ACCESS_READ
        whole = memoryview(mmap.mmap(fd, size, access=access))
    finally:
        os.close(fd)
    magic, version, count, body_bytes, file_bytes = _HEAD.unpack_from(whole)
    if (magic, version, file_bytes) != (_MAGIC, _FORMAT, size):
        raise BadObject(f"{path} is not a complete object of format {_FORMAT}")
    spans = _SPAN.iter_unpack(whole[size - count * _SPAN.size :])
    buffers = [whole[at : at + length] for at, length in spans]
    return pickle.loads(whole[ALIGNMENT : ALIGNMENT + body_bytes], buffers=buffers)


def _pickler(file: Any, take: Any, packages: set[str]) -> Any:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        """Pickles a part of an array without the memory of the whole array."""

        def reducer_override(self, value: Any) -> Any:
            package = type(value).__module__.partition(".")[0]
            packages.add(package)
            if package == "numpy" and type(value).__name__ == "ndarray" and _has_gaps(value):
                return value.copy().__reduce_ex__(5)
            if package == "pyarrow" and hasattr(value, "buffers") and _is_slice(value):
                return _compact(value).__reduce_ex__(5)
            return super().reducer_override(value)

    return Pickler(file, protocol=5, buffer_callback=take)


def _has_gaps(array: Any) -> bool:
    """True if the array is a view that skips some of its memory, so it has no single buffer."""
    return not (array.flags.forc or array.dtype.hasobject)


def _is_slice(array: Any) -> bool:
    """True if an Arrow array uses less than half of its buffers."""
    return bool(array.get_total_buffer_size() > 2 * array.nbytes + ALIGNMENT)


def _compact(array: Any) -> Any:
    """A copy of the array alone; Arrow's own pickle would contain the complete buffers."""
    import pyarrow as pa

    batch = pa.record_batch([array], names=["array"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        copy = stream.read_next_batch().column(0)
    # An extension type that is not registered would become its storage type.
    return copy if copy.type == array.type else array


def _fill(fd: int, value: Pickled) -> None:
    head = _HEAD.pack(_MAGIC, _FORMAT, len(value.buffers), len(value.body), value.file_bytes)
    _write_at(fd, head, 0)
    parts, offsets = (value.body, *value.buffers), value.offsets
    for part, at in zip(parts, offsets, strict=True):
        _write_at(fd, part, at)
    table = [
        _SPAN.pack(at, len(part)) for part, at in zip(value.buffers, offsets[1:], strict=True)
    ]
    _write_at(fd, b"".join(table), value.table_at)
    # Without buffers, the file ends with the padding of the pickle.
    os.ftruncate(fd, value.file_bytes)


def _write_at(fd: int, data: bytes | memoryview, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written


def _reserve(fd: int, size: int) -> None:
    """Reserve the space now: readers would get SIGBUS if a page could not be allocated later."""
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is None:
        return
    try:
        reserve(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT


FOLDER = "HOLDFAST_OBJECTS_DIR"
_MEMORY = "/dev/shm"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# One tenth of a file system in memory is left for other programs, such as torch's data loaders.
_LEFT_OF_MEMORY = 10
_CGROUP = Path("/sys/fs/cgroup")


class NoRoom(OSError):
    """No place has room for an object; the message says how much each one had."""


class ForeignFolder(OSError):
    """Other users can write to the folder, so its contents cannot be trusted."""


class ObjectFolder:
    """The objects of this process: one folder in each place that has some of them.

    Objects belong to one process: a forked child has none of its parent's.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._roots = roots(environ)
        self._folders: dict[str, LockedFolder] = {}

    def put(self, name: str, value: Pickled) -> str:
        """Write the value to a file, which gets its name when it is complete. Returns the path.

        Raises NoRoom if no place has room for it, or another OSError.
        """
        told = []
        for root in self._roots:
            free = _free_bytes(root)
            told.append(f"{root}: {max(0, free):,} bytes")
            if root == _MEMORY and not _memory_has_room(value.file_bytes, free):
                continue
            try:
                return self._write(root, name, value)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
        raise NoRoom(errno.ENOSPC, f"it takes {value.file_bytes:,} bytes ({'; '.join(told)})")

    def close(self) -> None:
        """Remove all objects. Processes that have mapped one can still read it."""
        while self._folders:
            self._folders.popitem()[1].remove()

    def forsake(self) -> None:
        """In a forked child: close the descriptors; the folders belong to the parent."""
        for folder in self._folders.values():
            os.close(folder.lock)
        self._folders.clear()

    def _write(self, root: str, name: str, value: Pickled) -> str:
        if root not in self._folders:
            self._folders[root] = LockedFolder(_base(root))
        path = os.path.join(self._folders[root].path, name)
        write(f"{path}.part", value)
        os.rename(f"{path}.part", path)
        return path


def roots(environ: Mapping[str, str]) -> Sequence[str]:
    """The places for objects, the best one first."""
    if environ.get(FOLDER):
        return (os.path.abspath(os.path.expanduser(environ[FOLDER])),)
    disk = _temporary_folder()
    return (_MEMORY, disk) if os.access(_MEMORY, os.W_OK | os.X_OK) else (disk,)


def _temporary_folder() -> str:
    try:
        import tempfile

        return os.path.abspath(tempfile.gettempdir())
    except FileNotFoundError:  # no folder is writable: the next write reports the error
        return "/tmp"


def temporary_folder() -> LockedFolder:
    """A folder on the disk for files of this process. `remove_abandoned` removes it if the
    process was killed. Raises OSError."""
    return LockedFolder(_base(_temporary_folder()))


def remove_abandoned(environ: Mapping[str, str]) -> None:
    """Remove the objects and files of processes that ended without removing them."""
    for root in dict.fromkeys((*roots(environ), _temporary_folder())):
        remove_unlocked(_base(root))


def _base(root: str) -> str:
    return os.path.join(root, f"holdfast-objects-{os.getuid()}")


class LockedFolder:
    """A new folder `<base>/<process>-<random>` that only this user can read. This process keeps it
    locked as long as it lives."""

    def __init__(self, base: str) -> None:
        """Raises OSError, and ForeignFolder if another user can write to `base`."""
        import secrets

        self._base = base
        while True:
            make_own(base)
            self.path = os.path.join(base, f"{os.getpid()}-{secrets.token_hex(4)}")
            try:
                os.mkdir(self.path, 0o700)
                self.lock = _lock(self.path)
            except (FileNotFoundError, BlockingIOError):
                continue  # another process removed or locked it before this process had locked it
            if os.path.isdir(self.path):
                return
            os.close(self.lock)

    def remove(self) -> None:
        """Remove it, and end its lock."""
        try_to_delete(self.path)  # the next process removes the rest
        os.close(self.lock)
        with suppress(OSError):  # other processes have folders there
            os.rmdir(self._base)


def make_own(base: str) -> None:
    """Make a folder for this user, unless it is there. Raises OSError, and ForeignFolder if
    another user could have written to it."""
    with suppress(FileExistsError):
        os.makedirs(base, mode=0o700)
    _check_own(base)


def _check_own(base: str) -> None:
    found = os.lstat(base)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ForeignFolder(
            errno.EPERM, "it must be a folder that only this user can write to", base
        )


def remove_unlocked(base: str) -> None:
    """Remove the folders in `base` whose process has ended."""
    try:
        _check_own(base)
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        folder = os.path.join(base, name)
        with suppress(OSError):  # its process lives, or another process has removed it
            fd = _lock(folder)
            try:
                try_to_delete(folder)
            finally:
                os.close(fd)
    with suppress(OSError):  # it is not empty
        os.rmdir(base)


def _lock(folder: str) -> int:
    """Lock a folder. Raises BlockingIOError if another descriptor, here or elsewhere, has the
    lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _free_bytes(root: str) -> int:
    try:
        found = os.statvfs(root)
    except FileNotFoundError:
        return 0
    free = found.f_bavail * found.f_frsize
    return free - found.f_blocks * found.f_frsize // _LEFT_OF_MEMORY if root == _MEMORY else free


def _memory_has_room(size: int, free: int) -> bool:
    """True if as much memory as the object takes is left for the processes that use it."""
    import psutil

    available = min(psutil.virtual_memory().available, _left_of_cgroup())
    return size <= free and 2 * size <= available


def _left_of_cgroup() -> float:
    """The bytes of memory that this container may still use; infinite without a limit."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - used
