"""Simulates what a power cut leaves of a run: everything forced to the disk, and by chance some of
the rest.

`environ_for` makes every Python process that is started with it record, at each fsync, what became
durable and how all files looked at that moment. `after` creates a directory as it may be found
when the power is back: each folder has the names of its last fsync, or those of the moment; each
file the bytes of its last fsync, those of the moment, or a part of what came since. A disk may
refuse an fsync, like one that could not write: the pages are dropped, and the fsync after it
succeeds without them. Linux only; on a file system that gives a new file a new inode number (tmpfs
does).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import random
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from tests.rig import ROOT
from tests.rig.faults.deaths import HOOK

VARIABLE: Final = "HOLDFAST_TEST_POWER"
BOOT: Final = "HOLDFAST_TEST_BOOT"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def environ_for(folder: Path, root: Path, *, refused: int = 0, times: int = 1) -> dict[str, str]:
    """Record into `folder` what happens below `root`, which must exist.

    From fsync number `refused` (from 1, of all processes) on, `times` fsyncs are answered with
    EIO; 0 for none.
    """
    (folder / "blobs").mkdir(parents=True)
    (folder / "log").touch()
    (folder / "asked").write_text("0")
    (folder / "dropped").write_text("{}")
    told = [str(folder), str(root), refused, times]
    return {VARIABLE: json.dumps(told), "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}


def refusals(folder: Path) -> list[str]:
    """The files and folders whose fsync was refused."""
    path = folder / "refused"
    return path.read_text().splitlines() if path.exists() else []


def rebooted(boot: str) -> dict[str, str]:
    """The environment of a machine that was rebooted since."""
    return {BOOT: boot, "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}


@dataclass(frozen=True, slots=True)
class Moment:
    """An fsync of the inode `synced`, its content, and everything that existed then.

    A content is a blob's name, or for a folder its names with their inodes.
    """

    synced: int
    content: Any
    now: Mapping[int, Any] = field(repr=False)


class Recording:
    """What the run has done, fsync by fsync."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._blobs = folder / "blobs"
        self._root = os.stat(root).st_ino
        lines = (folder / "log").read_text().splitlines()
        self.moments = [_moment(json.loads(line)) for line in lines]

    def after(self, number: int, target: Path, chance: random.Random | None) -> None:
        """Create `target` as a cut after this many fsyncs leaves it; by `chance`, or at its
        worst."""
        durable = {moment.synced: moment.content for moment in self.moments[:number]}
        now = self.moments[number - 1].now if number else {}
        self._fill(target, self._root, durable, now, chance)

    def _fill(
        self,
        target: Path,
        inode: int,
        durable: Mapping[int, Any],
        now: Mapping[int, Any],
        chance: random.Random | None,
    ) -> None:
        target.mkdir(exist_ok=True)
        names = durable.get(inode, {})
        if chance is not None and chance.random() < 0.5:
            names = now.get(inode, names)
        for name, (number, is_folder) in names.items():
            path = target / name
            if is_folder:
                self._fill(path, number, durable, now, chance)
            else:
                path.write_bytes(self._bytes(number, durable, now, chance))

    def _bytes(
        self,
        inode: int,
        durable: Mapping[int, Any],
        now: Mapping[int, Any],
        chance: random.Random | None,
    ) -> bytes:
        forced = self._blob(durable.get(inode))
        if chance is None or inode not in now or chance.random() < 0.5:
            return forced
        current = self._blob(now[inode])
        if not current.startswith(forced):
            return current
        return current[: chance.randint(len(forced), len(current))]

    def _blob(self, name: str | None) -> bytes:
        return (self._blobs / name).read_bytes() if name else b""


def _moment(line: Sequence[Any]) -> Moment:
    synced, content, now = line
    return Moment(synced, content, {int(inode): found for inode, found in now.items()})


# -- in the processes -----------------------------------------------------------------------------


def install(environ: Mapping[str, str]) -> None:
    """Called by `sitecustomize`."""
    if VARIABLE in environ:
        folder, root, refused, times = json.loads(environ[VARIABLE])
        recorder = _Recorder(Path(folder), Path(root), range(refused, refused + times))
        for name in ("fsync", "fdatasync"):
            setattr(os, name, recorder.recorded(getattr(os, name)))
    if BOOT in environ:
        _boot_anew(environ[BOOT])


def _boot_anew(boot: str) -> None:
    perform = io.open

    def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
        if str(file) == _BOOT_ID:
            return io.StringIO(f"{boot}\n")
        return perform(file, *args, **kwargs)

    io.open = opened


class _Recorder:
    def __init__(self, folder: Path, root: Path, refused: range) -> None:
        self._folder = folder
        self._root = root
        self._refused = refused if refused.start else range(0)

    def recorded(self, perform: Callable[[Any], None]) -> Callable[[Any], None]:
        def forced(file: Any) -> None:
            fd = file if isinstance(file, int) else file.fileno()
            path = os.readlink(f"/proc/self/fd/{fd}")
            if not (path == str(self._root) or path.startswith(f"{self._root}/")):
                perform(fd)
                return
            # What existed before is durable after it; what comes meanwhile may not be.
            if self._refused and self._is_refused():
                self._drop(fd, path)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            inode, content = os.fstat(fd).st_ino, self._content(fd)
            perform(fd)
            self._write(inode, content)

        return forced

    def _is_refused(self) -> bool:
        with open(self._folder / "asked", "r+") as counted:
            fcntl.flock(counted, fcntl.LOCK_EX)
            number = int(counted.read()) + 1
            counted.seek(0)
            counted.write(str(number))
        return number in self._refused

    def _drop(self, fd: int, path: str) -> None:
        """Data that was not on the disk yet never gets there, whatever later fsyncs answer."""
        with open(self._folder / "refused", "a") as told:
            told.write(f"{path}\n")
        facts = os.fstat(fd)
        if stat.S_ISDIR(facts.st_mode):
            return
        with open(self._folder / "dropped", "r+") as table:
            fcntl.flock(table, fcntl.LOCK_EX)
            dropped = json.load(table)
            since = self._durable_bytes(facts.st_ino)
            dropped.setdefault(str(facts.st_ino), []).append([since, facts.st_size])
            table.seek(0)
            json.dump(dropped, table)

    def _durable_bytes(self, inode: int) -> int:
        """How many of the file's bytes the disk has: files grow at their end."""
        known = 0
        for line in (self._folder / "log").read_text().splitlines():
            synced, content, _ = json.loads(line)
            if synced == inode and content:
                known = (self._folder / "blobs" / content).stat().st_size
        return known

    def _without_dropped(self, inode: int, data: bytes) -> bytes:
        if not self._refused:
            return data
        with open(self._folder / "dropped") as table:
            fcntl.flock(table, fcntl.LOCK_SH)
            dropped = json.load(table).get(str(inode), ())
        left = bytearray(data)
        for since, until in dropped:
            part = range(*slice(since, until).indices(len(left)))
            left[since : since + len(part)] = bytes(len(part))
        return bytes(left)

    def _write(self, inode: int, content: Any) -> None:
        with open(self._folder / "log", "a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.write(json.dumps([inode, content, dict(self._walk(str(self._root)))]) + "\n")

    def _content(self, fd: int) -> Any:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return _names(f"/proc/self/fd/{fd}")
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            return self._keep(self._without_dropped(os.fstat(fd).st_ino, file.read()))

    def _keep(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._folder / "blobs" / name
        if not path.exists():
            path.write_bytes(data)
        return name

    def _walk(self, folder: str) -> Iterator[tuple[int, Any]]:
        """The content of every file and folder; one that disappears meanwhile is skipped."""
        names = _names(folder)
        yield os.stat(folder).st_ino, names
        for name, (inode, is_folder) in names.items():
            path = f"{folder}/{name}"
            try:
                if is_folder:
                    yield from list(self._walk(path))
                else:
                    with open(path, "rb") as file:
                        yield inode, self._keep(self._without_dropped(inode, file.read()))
            except FileNotFoundError:
                continue


def _names(folder: str) -> dict[str, tuple[int, bool]]:
    """A socket has no content: the one of a live run is left out. So is a link to a folder, which
    the user's script makes."""
    with os.scandir(folder) as entries:
        return {
            e.name: (e.inode(), e.is_dir(follow_symlinks=False))
            for e in entries
            if e.is_file() or e.is_dir(follow_symlinks=False)
        }
