"""What a power cut leaves of a run: what was forced to the disk, and by luck some of the rest.

`environ_for` makes every Python process that is started with it write down, at each fsync, what
became durable by it and how all files looked in that moment. `after` makes a directory as it may
be found when the power comes back: each folder has the names that it had at its last fsync, or
those of the moment; each file the bytes of its last fsync, those of the moment, or a part of what
came since. Linux only; on a file system that gives a new file a new inode number (tmpfs does).
"""

from __future__ import annotations

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
from holdfast.testing.faults import HOOK

VARIABLE: Final = "HOLDFAST_TEST_POWER"
BOOT: Final = "HOLDFAST_TEST_BOOT"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def environ_for(folder: Path, root: Path) -> dict[str, str]:
    """Record into `folder` what happens below `root`, which must exist."""
    (folder / "blobs").mkdir(parents=True)
    (folder / "log").touch()
    return {VARIABLE: json.dumps([str(folder), str(root)]), "PYTHONPATH": str(HOOK)}


def rebooted(boot: str) -> dict[str, str]:
    """The environment of a machine that has been started since."""
    return {BOOT: boot, "PYTHONPATH": str(HOOK)}


@dataclass(frozen=True, slots=True)
class Moment:
    """An fsync: of the inode `synced`, whose content it was, and all that was there then.

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
        """Make `target` as a cut after so many fsyncs leaves it; by `chance`, or at its worst."""
        durable = {moment.synced: moment.content for moment in self.moments[:number]}
        now = self.moments[number - 1].now
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
        recorder = _Recorder(*map(Path, json.loads(environ[VARIABLE])))
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
    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root
        self._fsync = os.fsync

    def recorded(self, perform: Callable[[Any], None]) -> Callable[[Any], None]:
        def forced(file: Any) -> None:
            fd = file if isinstance(file, int) else file.fileno()
            path = os.readlink(f"/proc/self/fd/{fd}")
            if not (path == str(self._root) or path.startswith(f"{self._root}/")):
                perform(fd)
                return
            # What is there before is durable after, and what comes meanwhile may not be.
            inode, content = os.fstat(fd).st_ino, self._content(fd)
            perform(fd)
            self._write(inode, content)

        return forced

    def _write(self, inode: int, content: Any) -> None:
        with open(self._folder / "log", "a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.write(json.dumps([inode, content, dict(self._walk(str(self._root)))]) + "\n")

    def _content(self, fd: int) -> Any:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return _names(f"/proc/self/fd/{fd}")
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            return self._keep(file.read())

    def _keep(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._folder / "blobs" / name
        if not path.exists():
            path.write_bytes(data)
        return name

    def _walk(self, folder: str) -> Iterator[tuple[int, Any]]:
        """The content of every file and folder; one that goes meanwhile is as good as gone."""
        names = _names(folder)
        yield os.stat(folder).st_ino, names
        for name, (inode, is_folder) in names.items():
            path = f"{folder}/{name}"
            try:
                if is_folder:
                    yield from list(self._walk(path))
                else:
                    with open(path, "rb") as file:
                        yield inode, self._keep(file.read())
            except FileNotFoundError:
                continue


def _names(folder: str) -> dict[str, tuple[int, bool]]:
    with os.scandir(folder) as entries:
        return {e.name: (e.inode(), e.is_dir(follow_symlinks=False)) for e in entries}
