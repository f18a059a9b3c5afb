"""Writes a value to a file that any number of processes can map and read without a copy.

    0   magic, format, number of buffers, length of the pickle, length of the file
    64  the pickle (protocol 5), then each buffer of it, all at multiples of 64 bytes
    at the end, offset and length of each buffer

Buffers are the data that NumPy, Arrow, pandas and other libraries with support for protocol 5
leave out of the pickle. Readers get them as read-only views of the map, so all processes share the
same memory.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import pickle
import struct
from collections.abc import Sequence
from typing import Any

from holdfast.dataclass import dataclass

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
    """Whether the array is a view that skips some of its memory, so it has no single buffer."""
    return not (array.flags.forc or array.dtype.hasobject)


def _is_slice(array: Any) -> bool:
    """Whether an Arrow array uses less than half of its buffers."""
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
