"""The folder in which the experiments of one user on one machine find each other.

    <id>.lock      locked as long as the experiment's script lives
    <id>.json      who it is; what it holds and waits for, if it shares the machine
    <id>.workers   each process that runs its trials holds a share of this lock
    <id>.alive     a FIFO that the script keeps open for writing: it ends with the script
    <id>.bell      a FIFO that the script reads: others ring it when something has changed
    mutex          locked by who reads and then changes

All locks are the kernel's, so whatever ends a process also ends what it holds.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from holdfast.dataclass import dataclass
from holdfast.experiment.machine.fair_share import Claim, Sharer, Wish
from holdfast.forked import close_in_children
from holdfast.names import printable
from holdfast.schema import Count, UnreadableRecord, decode, to_fields
from holdfast.syncer.files.durable import replace_file
from holdfast.syncer.files.tree import is_at
from holdfast.syncer.stores.store import parse_table, read_small
from holdfast.syncer.uploader.lock import Holder
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Amounts

FOLDER = "HOLDFAST_SHARE_DIR"
_FORMAT = 1
_MOST_BYTES = 1 << 20
_FILE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK, _JSON, _WORKERS, _ALIVE, _BELL = ".lock", ".json", ".workers", ".alive", ".bell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What an experiment tells the others. `uses` is the most that it takes at once, `total` what
    it knows the machine to have. `waits` are its requests, the oldest first."""

    format: Count = _FORMAT
    pid: Count
    command: str
    experiment: str
    shares: bool
    total: Amounts
    uses: Amounts
    gpus: Sequence[str] = ()
    holds: Sequence[Claim] = ()
    waits: Sequence[Wish] = ()

    @classmethod
    def here(
        cls,
        experiment: str,
        *,
        shares: bool,
        total: Mapping[str, float],
        uses: Mapping[str, float],
        gpus: Sequence[str],
    ) -> Self:
        """An experiment of this process, which holds nothing yet."""
        holder = Holder.here()
        return cls(
            pid=holder.pid,
            command=_short(holder.command),
            experiment=experiment,
            shares=shares,
            total=dict(total),
            uses=dict(uses),
            gpus=list(gpus),
        )

    def __str__(self) -> str:
        named = f"experiment {self.experiment}" if self.experiment else ""
        facts = ", ".join(filter(None, (self.command, named)))
        return printable(f"process {self.pid} ({facts})")

    def sharer(self, name: str) -> Sharer:
        return Sharer(
            name=name, total=self.total, gpus=self.gpus, holds=self.holds, waits=self.waits
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A member, by its id. `is_alive`: its script lives; otherwise only workers of it do."""

    name: str
    member: Member
    is_alive: bool


class MachineFolder:
    """Raises OSError if the folder cannot be used, and InvalidConfig if others could write to
    it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ensure()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The folder of this user on this machine. It does not depend on TMPDIR or on a login
        session, since all experiments must find the same one."""
        given = environ.get(FOLDER)
        place = Path(given).expanduser() if given else Path(f"/tmp/holdfast-{os.getuid()}")
        return cls(place.absolute())

    def _ensure(self) -> None:
        with suppress(FileExistsError):
            os.makedirs(self.path, mode=0o700)
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise InvalidConfig(
                f"experiments on this machine cannot meet in {self.path}: it must be a folder of "
                f"this user that nobody else can open (mode 0700). Correct it, or name another "
                f"one in {FOLDER}"
            )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Nobody else changes anything meanwhile."""
        descriptor = self._locked()
        try:
            yield
        finally:
            os.close(descriptor)

    def _locked(self) -> int:
        """The locked mutex. A cleaner of old temporary files may remove it, and the folder, while
        this process waits for it: then others lock a new one."""
        while True:
            self._ensure()
            descriptor = os.open(self.path / "mutex", _FILE, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_at(self.path / "mutex", descriptor):
                return descriptor
            os.close(descriptor)

    def seen(self) -> list[Seen]:
        """All members, in the order of their ids. Removes the files of those that are gone."""
        found = []
        for name in sorted(p.stem for p in self.path.glob(f"*{_LOCK}")):
            is_alive = is_locked(self._file(name, _LOCK))
            if not is_alive and not is_locked(self._file(name, _WORKERS)):
                self.remove(name)
            elif (member := self._read(name)) is not None:
                found.append(Seen(name=name, member=member, is_alive=is_alive))
        return found

    def peek(self) -> list[Seen]:
        """The members that share, as they were a moment ago. Locks and removes nothing."""
        names = sorted(path.stem for path in self.path.glob(f"*{_LOCK}"))
        found = ((name, self._read(name)) for name in names)
        return [
            Seen(name=name, member=member, is_alive=True)
            for name, member in found
            if member is not None and member.shares
        ]

    def remove(self, name: str) -> None:
        """Remove a member's files, the lock last: without it nobody looks for the others."""
        for kind in (_BELL, _ALIVE, _WORKERS, _JSON, _LOCK):
            self._file(name, kind).unlink(missing_ok=True)

    def ring(self, name: str) -> None:
        """Tell a member that something has changed."""
        with suppress(OSError):  # it is gone, or rung already
            bell = os.open(self._file(name, _BELL), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(bell, b"!")
            finally:
                os.close(bell)

    def open_alive(self, name: str) -> int | None:
        """A descriptor that becomes readable when the member's script has ended; None if it has
        ended already."""
        try:
            descriptor = os.open(
                self._file(name, _ALIVE), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            return None
        # A FIFO whose last writer has gone before it was opened does not say so.
        if is_locked(self._file(name, _LOCK)):
            return descriptor
        os.close(descriptor)
        return None

    def wait_for_workers(self, name: str) -> None:
        """Return when no process that ran trials of this member is left. Blocks."""
        with suppress(OSError):
            descriptor = os.open(self._file(name, _WORKERS), os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            finally:
                os.close(descriptor)

    def workers_file(self, name: str) -> Path:
        return self._file(name, _WORKERS)

    def _file(self, name: str, kind: str) -> Path:
        return self.path / f"{name}{kind}"

    def _read(self, name: str) -> Member | None:
        """What the member has written; None for a file of another version."""
        try:
            found: Member = decode(
                Member, parse_table(read_small(self._file(name, _JSON), _MOST_BYTES))
            )
        except (OSError, ValueError, UnreadableRecord):
            return None
        return found if found.format == _FORMAT else None


class Membership:
    """This process's own files there, from its creation to `close`. `bell` is negative while they
    could not be written again."""

    def __init__(self, folder: MachineFolder, member: Member) -> None:
        self.name = f"{member.pid}-{secrets.token_hex(4)}"
        self.folder = folder
        self._lock = self._alive = self.bell = -1
        self._shares = member.shares
        self._enter(member)
        close_in_children(self)

    def write(self, member: Member) -> None:
        """Replace what the others see. Raises OSError."""
        if not os.path.exists(self._path(_LOCK)):  # removed by a cleaner of old temporary files
            self.close_in_child()
            self._enter(member)
            return
        replace_file(self._path(_JSON), json.dumps(to_fields(member)).encode())

    def _enter(self, member: Member) -> None:
        replace_file(self._path(_JSON), json.dumps(to_fields(member)).encode())
        if self._shares:
            for kind in (_ALIVE, _BELL):
                with suppress(FileNotFoundError):  # a cleaner may have left it
                    os.unlink(self._path(kind))
                os.mkfifo(self._path(kind), 0o600)
            self._alive = os.open(self._path(_ALIVE), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self.bell = os.open(self._path(_BELL), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        # It is locked before anybody sees it.
        hidden = self.folder.path / f".{self.name}"
        self._lock = os.open(hidden, _FILE, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(hidden, self._path(_LOCK))

    def _path(self, kind: str) -> Path:
        return self.folder.path / f"{self.name}{kind}"

    def close(self) -> None:
        """Leave. The others see at once that this experiment holds nothing."""
        self.folder.remove(self.name)
        self.close_in_child()

    def close_in_child(self) -> None:
        """Close the descriptors; the files are the parent's."""
        for descriptor in (self._lock, self._alive, self.bell):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._alive = self.bell = -1


def _short(command: str) -> str:
    """The command without the folder of its program, which is mostly Python."""
    program, _, arguments = command.partition(" ")
    return f"{os.path.basename(program)} {arguments}".rstrip()


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock on this file, shared or not."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
    finally:
        os.close(descriptor)
    return False
