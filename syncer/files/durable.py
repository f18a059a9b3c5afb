"""Writes, copies and removes files: a crash leaves the old state or the new one, never a part.

Calls to a disk have a deadline. On a dead NFS server or a stuck disk, an fsync never returns and
cannot be interrupted. So a thread that is never joined makes the call. If it takes long, the user
gets a warning, and later the call counts as failed (`NoAnswer`), like any other error of the disk.
A run, its projector and its uploader set the deadline (`wait_at_most`). Other programs have none.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Final, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import NoAnswer
from holdfast.trees import delete_tree, refuse_mounts


def boot_id() -> str:
    """An id that changes when the machine restarts; "" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


R = TypeVar("R")

VARIABLE: Final = "HOLDFAST_DISK_DEADLINE_S"
_TOLD_AFTER_S = 30.0
# An fsync may have to write a whole checkpoint file to the disk.
_SLOWEST_BYTES_PER_S = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    deadline_s: float
    tell: Callable[[str], None]


_terms: ContextVar[_Terms | None] = ContextVar("holdfast_disk", default=None)


def wait_at_most(deadline_s: float, tell: Callable[[str], None]) -> None:
    """Set the deadline for this thread and the tasks that it starts from now on; 0 for none.

    Before the deadline, `tell` is called with a warning about a slow call, in the waiting thread.
    """
    _terms.set(_Terms(deadline_s=deadline_s, tell=tell) if deadline_s else None)


@contextmanager
def waiting_at_most(deadline_s: float, tell: Callable[[str], None]) -> Iterator[None]:
    """Like `wait_at_most`, inside this block."""
    before = _terms.get()
    wait_at_most(deadline_s, tell)
    try:
        yield
    finally:
        _terms.set(before)


def answered(perform: Callable[[], R], what: Callable[[], str], *, size_bytes: int = 0) -> R:
    """Make a call to the disk; `what` describes it, with the path. The deadline is a second longer
    for each 4 MiB of `size_bytes`.

    Raises NoAnswer.
    """
    terms = _terms.get()
    if terms is None:
        return perform()
    # Imported here because it imports asyncio, which takes longer than an fsync. Processes with a
    # deadline have imported it anyway.
    from holdfast.syncer.files.threads import ThreadCall

    try:
        asked = ThreadCall(perform)
    except RuntimeError:  # no thread can be started: a call without a deadline is better than none
        return perform()
    told_after_s = min(_TOLD_AFTER_S, terms.deadline_s / 2)
    deadline_s = terms.deadline_s + size_bytes // _SLOWEST_BYTES_PER_S
    if not asked.has_ended(told_after_s):
        terms.tell(
            f"the disk has not answered for {told_after_s:g} s: {what()}. After "
            f"{deadline_s:g} s ({VARIABLE}) this counts as failed"
        )
        # Two waits for half of the rest: if the job is suspended, only one of them passes.
        rest_s = (deadline_s - told_after_s) / 2
        if not (asked.has_ended(rest_s) or asked.has_ended(rest_s)):
            raise NoAnswer(errno.ETIMEDOUT, silent_for(deadline_s))
    return asked.result()


def silent_for(seconds: float) -> str:
    """The message about a disk that does not answer."""
    return f"the disk has not answered for {seconds:g} s"


TEMPORARY = ".tmp-"
REMOVED = ".removed-"
_LEFTOVER = re.compile(r"\.(tmp|removed)-[0-9a-f]{16}")


def unique() -> str:
    """Sixteen random hexadecimal digits for a unique name."""
    return os.urandom(8).hex()  # the module `secrets` costs 9 ms of import


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes; a single call may write fewer, for instance if the disk is nearly full."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_file(descriptor: int, size_bytes: int = 0) -> None:
    """Force the data written to the descriptor to the disk; at most `size_bytes` are waiting.

    On macOS, `fsync` leaves the data in the drive's cache (see its man page), so F_FULLFSYNC is
    used. Raises OSError, such as NoAnswer.
    """
    answered(
        lambda: _force(descriptor),
        lambda: f"fsync of {_path_of(descriptor)}",
        size_bytes=size_bytes,
    )


def fdatasync_file(descriptor: int) -> None:
    """Like `fsync_file`, without the file's times, which would take another write."""
    # macOS has no fdatasync.
    force = getattr(os, "fdatasync", _force)
    answered(lambda: force(descriptor), lambda: f"fdatasync of {_path_of(descriptor)}")


def _force(descriptor: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def _path_of(descriptor: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")  # only on Linux
    return "a file"


@contextmanager
def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of the file or folder, for the duration of the block. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor of a new file, to write and to read. Raises OSError."""
    with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        yield descriptor


def fsync_path(path: str | os.PathLike[str]) -> None:
    """Force a file to the disk that any process has written."""
    with opened(path) as descriptor:
        fsync_file(descriptor)


def fsync_dir(path: str | os.PathLike[str]) -> None:
    """Force the names in a folder to the disk. Only then does a rename survive a power cut."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        answered(lambda: os.fsync(descriptor), lambda: f"fsync of the folder {path!s}")


def make_folder(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Create a folder and its parents if necessary, and force their names to the disk.

    `mode` is for the folder itself if it is created. Raises OSError.
    """
    folder = Path(os.path.abspath(path))
    above = folder.parent
    if not above.exists():
        make_folder(above)
    folder.mkdir(mode=mode, exist_ok=True)
    # Also if it exists: its creator may have died before forcing its name to the disk.
    with suppress(PermissionError):  # permission to enter a folder does not allow opening it
        fsync_dir(above)


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file by `data` and force it to the disk. A reader sees the old or the new bytes.

    The folder must exist. Raises OSError, and then leaves the old file and no temporary one. If
    only the folder could not be forced to the disk, it leaves the new file, and a power cut may
    bring back the old one.
    """
    with new_file_for(path) as file:
        write_all(file.fileno(), data)
        fsync_file(file.fileno())
    fsync_dir(os.path.dirname(path) or ".")


def replace_file(path: str | os.PathLike[str], data: bytes, *, number: str = "") -> None:
    """Replace the file by `data`, without an fsync. A reader sees the old or the new bytes.

    A power cut may lose both, so use it only for files that can be created again. The folder must
    exist. `number` is that in the name of the temporary file, if the caller removes it after a
    crash. Raises OSError, and then leaves the old file and no temporary one.
    """
    with new_file_for(path, number=number) as file:
        write_all(file.fileno(), data)


@contextmanager
def new_file_for(
    path: str | os.PathLike[str], mode: int = 0o666, *, number: str = ""
) -> Iterator[FileIO]:
    """A new file, under a temporary name in the same folder. It replaces the file `path` at the
    end of the block; if that raises, it is removed."""
    # The temporary name does not contain the target's, which may already have 255 bytes.
    temporary = os.path.join(os.path.dirname(path), f"{TEMPORARY}{number or unique()}")
    try:
        with open(temporary, "xb", buffering=0, opener=partial(os.open, mode=mode)) as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove the file if it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory and its contents; does nothing if it is missing.

    It is first renamed to a hidden name, so that no reader sees a partly deleted checkpoint. If a
    crash leaves it there, `remove_leftovers_in` removes it. For a symlink, only the link is
    removed.
    """
    aside = put_aside(path)
    if aside is not None:
        delete_tree(aside)


def put_aside(path: str | os.PathLike[str], into: Path | None = None) -> Path | None:
    """Rename a directory to a hidden name in the same folder, or in another one of its file
    system. Returns the new path; None if the directory is missing. Raises Mounted, OSError."""
    target = Path(path)
    if os.path.lexists(target):
        refuse_mounts(target)
    aside = (into or target.parent) / f"{REMOVED}{unique()}"
    try:
        os.rename(target, aside)
    except FileNotFoundError:
        return None
    return aside


def is_leftover(name: str) -> bool:
    """True if this is the name of a leftover of an interrupted write or removal."""
    return _LEFTOVER.fullmatch(name) is not None


def remove_leftovers_in(folder: str | os.PathLike[str], before: float = float("inf")) -> bool:
    """Remove the leftovers of interrupted writes and removals in a folder; return whether none is
    left.

    Only those that have not changed since `before` (seconds since 1970, by the file system's
    clock): newer ones may be writes in progress. Leftovers that cannot be removed stay.
    """
    try:
        with os.scandir(folder) as entries:
            return remove_leftovers_among(list(entries), before)
    except FileNotFoundError:
        return True


def remove_leftovers_among(
    entries: Iterable[os.DirEntry[str]], before: float = float("inf")
) -> bool:
    """The same, for the entries of a folder that was listed."""
    left = [entry for entry in entries if is_leftover(entry.name)]
    gone = 0
    for entry in left:
        with suppress(OSError):  # its owner has removed it, or this process may not
            if entry.stat(follow_symlinks=False).st_ctime < before:
                delete_tree(Path(entry.path))
                gone += 1
    return gone == len(left)


_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_CHUNK_BYTES = 1 << 30
_BUFFER_BYTES = 1 << 20
# These errors mean that the call is not supported here; others (ENOSPC, EIO) are failures.
_NOT_HERE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}


def copy_bytes(source: int, copy: int, size: int) -> int:
    """Copy from descriptor to descriptor in the cheapest way; return the number of bytes copied.

    `size` is the expected size; the whole file is copied, whatever its size. Raises OSError.
    """
    if size >= _BUFFER_BYTES and _share_blocks(source, copy):
        return os.fstat(copy).st_size
    if size < _BUFFER_BYTES or not hasattr(os, "copy_file_range"):
        return _copy_through_buffer(source, copy, min(size + 1, _BUFFER_BYTES))
    copied = 0
    try:
        while count := os.copy_file_range(source, copy, _CHUNK_BYTES):
            copied += count
    except OSError as error:
        if copied or error.errno not in _NOT_HERE:
            raise
        return _copy_through_buffer(source, copy)
    # Some pseudo file systems answer 0 at once for a file that has bytes (copy_file_range(2)).
    return copied or _copy_through_buffer(source, copy)


def _share_blocks(source: int, copy: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(copy, _FICLONE, source)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        return False
    return True


def _copy_through_buffer(source: int, copy: int, buffer_bytes: int = _BUFFER_BYTES) -> int:
    copied = 0
    while chunk := os.read(source, buffer_bytes):
        write_all(copy, chunk)
        copied += len(chunk)
        if len(chunk) < buffer_bytes:  # a short read of a regular file means its end
            break
    return copied
