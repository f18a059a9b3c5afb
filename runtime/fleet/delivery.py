"""Files that every node gets before it starts workers, over the connection of its agent.

They travel in small parts, so that beats pass between them. Each is checked by its SHA-256, and
has its name on the node only once it is complete.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast.dataclass import dataclass
from holdfast.names import plain_name
from holdfast.runtime.errors import WireError
from holdfast.runtime.wire import Message

if TYPE_CHECKING:
    from tarfile import TarInfo

PART_BYTES = 1 << 18
# Inside the agent's scratch folder.
OBJECTS, DIRECTORY, MODULES = "objects", "working_dir", "modules"

# Performs a call that waits for a disk, without holding up the loop.
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
Use = Literal["object", "directory", "modules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """A file for every node. An "object" keeps its `name`; "directory" and "modules" are
    compressed tar files, which are unpacked: workers start in the former, and import from both."""

    name: str
    path: str
    use: Use


class Receiver(Protocol):
    """The connection to an agent."""

    def send(self, message: Message) -> None: ...

    async def room(self) -> bool:
        """Wait until little waits to be sent. Returns False once the connection has ended."""


async def deliver(files: Sequence[SharedFile], link: Receiver, in_thread: InThread) -> None:
    """Send the files. Returns early if the connection ends. Raises OSError."""
    for file in files:
        digest = hashlib.sha256()
        with await in_thread(partial(open, file.path, "rb")) as opened:
            link.send(["file", file.name, file.use])
            while part := await in_thread(partial(opened.read, PART_BYTES)):
                digest.update(part)
                link.send(["part", part])
                if not await link.room():
                    return
        link.send(["whole", digest.digest()])


async def at_once(perform: Callable[[], Any]) -> Any:
    """An `InThread` for where nothing else needs the loop."""
    return perform()


class Delivered:
    """What an agent has got. Messages that are not valid raise WireError; a full disk raises
    OSError."""

    def __init__(self, folder: str) -> None:
        """`folder` is the agent's scratch folder."""
        self._folder = folder
        self._fd = -1
        self._name, self._use = "", ""
        self._digest = hashlib.sha256()
        self._archives: dict[str, str] = {}
        self._is_over = False
        self._unpacking = threading.Lock()

    def take(self, message: Message) -> None:
        """Handle a message of `deliver`."""
        match message:
            case ["file", str(name), "object" | "directory" | "modules" as use] if self._fd < 0:
                self._name, self._use = plain_name(name), use
                self._digest = hashlib.sha256()
                os.makedirs(self._at(OBJECTS), mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._fd = os.open(self._partial, flags, 0o600)
            case ["part", bytes(part)] if self._fd >= 0:
                self._digest.update(part)
                data = memoryview(part)
                while data:
                    data = data[os.write(self._fd, data) :]
            case ["whole", bytes(digest)] if self._fd >= 0:
                self.close()
                if digest != self._digest.digest():
                    raise WireError(f"the file {self._name} arrived with other bytes")
                self._keep()
            case _:
                raise WireError(f"not a part of a file: {message[0]!r:.80}")

    def close(self) -> None:
        """Close the file that is not complete."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def stop(self, within_s: float) -> None:
        """Write no more files: the folder will be removed. Waits for one that is being unpacked,
        for at most so long."""
        self._is_over = True
        self.close()
        if self._unpacking.acquire(timeout=within_s):
            self._unpacking.release()

    @property
    def directory(self) -> str | None:
        """The folder that workers start in, if one was sent."""
        folder = self._at(DIRECTORY)
        return folder if os.path.isdir(folder) else None

    def import_from(self) -> None:
        """Let workers import from what was sent, before anything else."""
        sent = [self._at(name) for name in (MODULES, DIRECTORY)]
        sys.path[:0] = [folder for folder in sent if os.path.isdir(folder)]

    def unpack(self) -> None:
        """Unpack the archives that have arrived. Takes a while. Raises OSError."""
        with self._unpacking:
            for use, archive in self._archives.items():
                if not self._is_over:
                    target = self._at(DIRECTORY if use == "directory" else MODULES)
                    unpack(archive, target, lambda: self._is_over)
                    os.unlink(archive)

    def _keep(self) -> None:
        if self._use == "object":
            os.rename(self._partial, os.path.join(self._at(OBJECTS), self._name))
        else:
            self._archives[self._use] = self._partial

    @property
    def _partial(self) -> str:
        return os.path.join(self._at(OBJECTS), f".part-{self._name}")

    def _at(self, name: str) -> str:
        return os.path.join(self._folder, name)


def unpack(archive: str, target: str, is_over: Callable[[], bool] = lambda: False) -> None:
    """Unpack a compressed tar file into the folder `target`, which must not exist. Stops before
    the next file once `is_over`. Raises OSError."""
    import tarfile  # takes 8 ms, and most nodes get no archive

    os.mkdir(target, mode=0o700)
    try:
        with tarfile.open(archive, "r:gz") as packed:
            # Python before 3.11.4, as Debian 12 has it, knows no filter.
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            members = packed if packed.extraction_filter else map(_inside, packed)
            packed.extractall(target, members=takewhile(lambda _: not is_over(), members))
    except (tarfile.TarError, ValueError) as error:
        raise OSError(f"{archive} cannot be unpacked: {error}") from error


def _inside(member: TarInfo) -> TarInfo:
    """Raise ValueError for what would be, or lead, outside of the folder, and for devices."""
    below = os.path.dirname(member.name) if member.issym() else ""
    leads_to = os.path.join(below, member.linkname) if member.issym() or member.islnk() else ""
    for path in (member.name, leads_to):
        if os.path.isabs(path) or os.path.normpath(path).split("/")[0] == "..":
            raise ValueError(f"{member.name} leads out of the folder")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise ValueError(f"{member.name} is neither a file, a folder nor a link")
    return member
