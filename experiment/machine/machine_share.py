"""The experiments of one user on one machine: the folder in which they find each other, and the
share of the machine that one of them has, if it shares the machine with others.

    <id>.json   who it is; what it holds and waits for, if it shares the machine
    <id>.lock   its script and each process that runs its trials hold a share of this lock
    mutex       locked by who reads and then changes

All locks are the kernel's, so whatever ends a process also ends what it holds.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from holdfast.experiment.machine.fair_share import (
    FORMAT,
    CapacityRequest,
    Claim,
    Due,
    Member,
    Wish,
    due,
    has_room,
    yields,
)
from holdfast.forked import close_in_children
from holdfast.schema import UnreadableRecord, decode, to_fields
from holdfast.syncer.files.durable import replace_file
from holdfast.syncer.files.tree import is_at
from holdfast.syncer.stores.store import parse_table, read_small
from holdfast.syncer.uploader.lock import Holder
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Allocation

FOLDER = "HOLDFAST_SHARE_DIR"
_MOST_BYTES = 1 << 20
_FILE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK, _JSON = ".lock", ".json"


def member_here(
    experiment: str,
    *,
    shares: bool,
    total: Mapping[str, float],
    uses: Mapping[str, float],
    gpus: Sequence[str],
) -> Member:
    """An experiment of this process, which holds nothing yet."""
    holder = Holder.here()
    # The program is mostly Python: its folder says nothing.
    program, _, arguments = holder.command.partition(" ")
    return Member(
        pid=holder.pid,
        command=f"{os.path.basename(program)} {arguments}".rstrip(),
        experiment=experiment,
        shares=shares,
        total=dict(total),
        uses=dict(uses),
        gpus=list(gpus),
    )


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

    def members(self) -> dict[str, Member]:
        """All members by their ids. Removes the files of those that are gone."""
        for name in self._names():
            if not is_locked(self.file(name, _LOCK)):
                self.remove(name)
        return self.peek()

    def peek(self) -> dict[str, Member]:
        """The members as they were a moment ago. Locks and removes nothing."""
        found = ((name, self._read(name)) for name in self._names())
        return {name: member for name, member in found if member is not None}

    def remove(self, name: str) -> None:
        """Remove a member's files, the lock last: without it nobody looks for the other."""
        for kind in (_JSON, _LOCK):
            self.file(name, kind).unlink(missing_ok=True)

    def file(self, name: str, kind: str) -> Path:
        return self.path / f"{name}{kind}"

    def _names(self) -> list[str]:
        return sorted(path.stem for path in self.path.glob(f"*{_LOCK}"))

    def _read(self, name: str) -> Member | None:
        """The member, as its file says; None for a file of another version."""
        try:
            found: Member = decode(
                Member, parse_table(read_small(self.file(name, _JSON), _MOST_BYTES))
            )
        except (OSError, ValueError, UnreadableRecord):
            return None
        return found if found.format == FORMAT else None


class Membership:
    """This process's own files there, from its creation to `close`. Raises OSError."""

    def __init__(self, folder: MachineFolder, member: Member) -> None:
        self.name = f"{member.pid}-{secrets.token_hex(4)}"
        self.lock_file = folder.file(self.name, _LOCK)
        self._folder = folder
        self._lock = -1
        self.write(member)
        close_in_children(self)

    def write(self, member: Member) -> None:
        """Replace what the others see. Raises OSError."""
        replace_file(self._folder.file(self.name, _JSON), json.dumps(to_fields(member)).encode())
        if self._lock >= 0 and self.lock_file.exists():
            return
        # It is new, or a cleaner of old temporary files has removed it.
        self.close_in_child()
        hidden = self._folder.path / f".{self.name}"
        self._lock = os.open(hidden, _FILE, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        os.rename(hidden, self.lock_file)  # it is locked before anybody sees it

    def close(self) -> None:
        """Leave. The others see that this experiment holds nothing."""
        self._folder.remove(self.name)
        self.close_in_child()

    def close_in_child(self) -> None:
        """Close the descriptor; the files are the parent's."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def is_locked(path: Path) -> bool:
    """True if a process holds a lock on this file, shared or not."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
    finally:
        os.close(descriptor)
    return False


# The interval of reading the files while a request waits. What the others give back, the end of
# their processes and the work of a cleaner of old files are then one case. A read takes 0.1 ms.
_WAITING_S = 0.25
_IDLE_S = 60.0
_CLOSES_WITHIN_S = 10.0

Tell = Callable[[str], None]
Fail = Callable[[BaseException], None]


class MachineShare:
    """Answers like `RunMachines`, which counts for the experiments of one process.

    Requests are granted by `fair_share.due`, each in the thread of this object: a lock on the
    files may take long.
    """

    def __init__(
        self, folder: MachineFolder, member: Member, tell: Tell, fail: Fail | None = None
    ) -> None:
        """Raises OSError. `tell` is called in any thread, at most once, when a request waits, and
        `fail` with an error that is a bug in holdfast: no request is granted any more."""
        self._folder = folder
        self._member = member
        self._tell: Tell | None = tell
        self._fail = fail
        self._membership = Membership(folder, member)
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._waiting: dict[int, tuple[CapacityRequest, float]] = {}
        self._held: dict[int, tuple[Allocation, Claim]] = {}
        self._next = 0
        self._closing = False
        # The others have not read the newest requests and resources.
        self._is_new = True
        self._thread = threading.Thread(target=self._serve, name="holdfast-share", daemon=True)
        self._thread.start()

    @property
    def workers(self) -> str:
        """The file on which each process that runs trials holds a shared lock."""
        return str(self._membership.lock_file)

    def take(
        self, wanted: Allocation, granted: Callable[[Allocation], None]
    ) -> Allocation | CapacityRequest:
        """The request, which `granted` answers later, in any thread; for nothing an answer at
        once."""
        if not any(wanted.amounts.values()):
            return wanted
        request = CapacityRequest(wanted, granted)
        with self._changing():
            self._waiting[self._next] = (request, time.monotonic())
            self._next += 1
        return request

    def give_back(self, allocation: Allocation) -> None:
        with self._changing():
            self._held = {n: one for n, one in self._held.items() if one[0] is not allocation}

    def cancel(self, waiting: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        with self._changing():
            before = len(self._waiting)
            self._waiting = {n: one for n, one in self._waiting.items() if one[0] is not waiting}
            return len(self._waiting) < before

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free now, and nobody waits."""
        return has_room(self._peek(), self._membership.name, amounts)

    @property
    def keeps_idle(self) -> bool:
        """No: two experiments could wait for each other's idle workers for ever."""
        return False

    def yields(self) -> bool:
        """True if an idle worker should end, because another experiment has less and waits."""
        return yields(self._peek(), self._membership.name)

    def waits_text(self, wanted: Allocation) -> str:
        """Nothing: the thread says it, once it knows who holds them."""
        return ""

    def close(self) -> None:
        """Leave: this experiment holds nothing any more."""
        with self._changing():
            self._closing = True
        self._thread.join(_CLOSES_WITHIN_S)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change what the others should see, and wake the thread."""
        with self._lock:
            self._is_new = True
            yield
        self._woken.set()

    def _peek(self) -> dict[str, Member]:
        """What is known without a lock; a request decides later."""
        with self._lock:
            own = self._own()
        sharing = {name: one for name, one in self._folder.peek().items() if one.shares}
        return {**sharing, self._membership.name: own}

    def _own(self, granted: Iterable[Due] = ()) -> Member:
        """This experiment as the others see it once these are granted. The caller has the lock."""
        claims = {one.number: one.claim for one in granted}
        waits = [
            Wish(number=number, amounts=dict(request.wanted.amounts), since=since)
            for number, (request, since) in self._waiting.items()
            if number not in claims
        ]
        holds = [claim for _, claim in self._held.values()]
        return replace(self._member, holds=[*holds, *claims.values()], waits=waits)

    # -- in the thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        others: list[Member] = []
        try:
            while not self._closing:
                self._woken.clear()
                try:
                    others = self._turn()
                except (OSError, InvalidConfig) as error:
                    self._say(f"cannot share this machine at the moment: {error}")
                self._tell_who_holds(others)
                if not self._closing:
                    self._woken.wait(_WAITING_S if self._waiting or self._is_new else _IDLE_S)
        except Exception as error:  # a bug in holdfast: the run ends with it
            if self._fail is None:
                raise
            self._fail(error)
        finally:
            with suppress(OSError, InvalidConfig), self._folder.changing():
                self._membership.close()

    def _turn(self) -> list[Member]:
        """Take what is due, once the others can see it. Returns the others."""
        name = self._membership.name
        with self._folder.changing():
            members = {n: one for n, one in self._folder.members().items() if one.shares}
            with self._lock:
                is_new = self._is_new
                members[name] = self._own()
                mine = [one for one in due(members) if one.name == name]
                own = self._own(mine)
                self._is_new = False
            if is_new or mine:
                try:
                    self._membership.write(own)
                except OSError:
                    self._is_new = True
                    raise
        for one in mine:
            with self._lock:
                if one.number not in self._waiting:
                    continue  # withdrawn meanwhile
                request, _ = self._waiting.pop(one.number)
                gpus = tuple(list(self._member.gpus).index(gpu) for gpu in one.claim.gpus)
                allocation = replace(request.wanted, gpus=gpus)
                self._held[one.number] = (allocation, one.claim)
            request.granted(allocation)
        return [one for other, one in members.items() if other != name]

    def _tell_who_holds(self, others: Sequence[Member]) -> None:
        with self._lock:
            oldest = next(iter(self._waiting.values()), None)
        holders = [str(one) for one in others if one.holds]
        if oldest is not None and holders:
            amounts = oldest[0].wanted.amounts
            wanted = " and ".join(f"{amount:g} {key}" for key, amount in amounts.items())
            self._say(
                f"waiting for {wanted}: {' and '.join(holders[:3])} "
                f"{'share' if len(holders) > 1 else 'shares'} this machine, and they take turns"
            )

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)
            self._tell = None
