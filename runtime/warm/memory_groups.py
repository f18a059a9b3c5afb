"""Control groups that limit the memory of a worker and everything that it starts (Linux).

A group lies below that of this process, so the limits of a container, a job or a service still
count. With version 2 of control groups a group that has processes cannot have limited children:
`prepare` moves the run's processes into a child first. The warm parent makes a group before it
forks a worker, and removes it after the worker's end. Groups of a warm parent that was killed are
empty; the next one removes them.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.runtime.errors import RuntimeFault
from holdfast.runtime.launcher import KernelKills

_MOUNTED = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_OURS = re.compile(r"holdfast-(\d+)-\d+")
# The child that has the run's own processes.
_MAIN = "holdfast-main"


class CannotEnforce(RuntimeFault):
    """The resource `memory` cannot be enforced here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The names of the files of one version: the limits in the order in which they are written,
    and the counter of processes that were killed."""

    limit: str
    others: tuple[tuple[str, str], ...]
    kills: str


_FIRST = _Files(
    limit="memory.limit_in_bytes",
    others=(("memory.memsw.limit_in_bytes", "{limit}"),),
    kills="memory.oom_control",
)
_SECOND = _Files(
    limit="memory.max",
    others=(("memory.swap.max", "0"), ("memory.oom.group", "1")),
    kills="memory.events",
)


class MemoryGroup:
    """The group of one worker."""

    def __init__(self, path: Path, files: _Files) -> None:
        self._path = path
        self._kills = KernelKills([path / files.kills])

    def enter(self, pid: int = 0) -> None:
        """Put a process into the group; 0 means this one. Raises OSError."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def has_exceeded(self) -> bool:
        """True if the kernel has killed a process of the group."""
        return self._kills.take()

    def remove(self) -> None:
        """Remove the group, unless a process that survived SIGKILL is still in it."""
        with suppress(OSError):
            self._path.rmdir()


class MemoryGroups:
    """Makes the groups of the workers of this process."""

    def __init__(self, mounted: Path = _MOUNTED, own_group: Path = _OWN_GROUP) -> None:
        """Raises CannotEnforce if this system has no control groups for memory."""
        below, self._files = _place(mounted, own_group)
        # The folder in which the groups are made.
        self.below = below.parent if below.name == _MAIN else below
        self._made = 0
        self._remove_left()

    def make(self, limit_bytes: int) -> MemoryGroup:
        """A new group. Raises OSError if it cannot be made."""
        self._made += 1
        path = self.below / f"holdfast-{os.getpid()}-{self._made}"
        path.mkdir()
        try:
            (path / self._files.limit).write_text(str(limit_bytes))
            for name, value in self._files.others:
                with suppress(OSError):  # a kernel without swap accounting has no such file
                    (path / name).write_text(value.format(limit=limit_bytes))
            return MemoryGroup(path, self._files)
        except OSError:
            path.rmdir()
            raise

    def _remove_left(self) -> None:
        """Remove the groups of processes that were killed. One with processes stays."""
        for path in self.below.iterdir():
            found = _OURS.fullmatch(path.name)
            if found and not os.path.exists(f"/proc/{found[1]}"):
                with suppress(OSError):
                    path.rmdir()


def prepare(mounted: Path = _MOUNTED, own_group: Path = _OWN_GROUP) -> None:
    """Call before the first process of a run is started: lets its workers have groups.

    Raises CannotEnforce, with what is missing and what to do.
    """
    below, files = _place(mounted, own_group)
    if files is _SECOND and below.name != _MAIN:
        _make_room(below)
    elif files is _SECOND:
        below = below.parent
    try:
        groups = MemoryGroups(mounted, own_group)
        groups.make(1 << 30).remove()
    except OSError as error:
        raise CannotEnforce(
            f"the resource memory cannot be enforced: no control group can be made in {below} "
            f"({error.strerror}). {_advice(files)}"
        ) from error


def _make_room(below: Path) -> None:
    """Let the children of this process's group have limits (version 2). Raises CannotEnforce."""
    control = below / "cgroup.subtree_control"
    try:
        if "memory" in control.read_text().split():
            return
        inside = {int(pid) for pid in (below / "cgroup.procs").read_text().split()}
        strangers = inside - {os.getpid()} - _descendants()
        if strangers:
            raise CannotEnforce(
                f"the resource memory cannot be enforced: other processes (such as "
                f"{min(strangers)}) are in the control group {below}. {_advice(_SECOND)}"
            )
        main = below / _MAIN
        main.mkdir(exist_ok=True)
        for pid in inside:
            (main / "cgroup.procs").write_text(str(pid))
        control.write_text("+memory")
    except OSError as error:
        raise CannotEnforce(
            f"the resource memory cannot be enforced: the control group {below} cannot be changed "
            f"({error.strerror}). {_advice(_SECOND)}"
        ) from error


def _descendants() -> set[int]:
    import psutil

    return {one.pid for one in psutil.Process().children(recursive=True)}


def _advice(files: _Files) -> str:
    if files is _FIRST:
        return "It is of version 1, which only root can change: run as root, or leave it out"
    return (
        "Start the script in a group of its own, with "
        "`systemd-run --user --scope -p Delegate=yes python script.py`, or leave it out"
    )


def _place(mounted: Path, own_group: Path) -> tuple[Path, _Files]:
    """The folder of this process's group, and the names of its files. Raises CannotEnforce."""
    try:
        lines = [line.split(":", 2) for line in own_group.read_text().splitlines()]
    except OSError:
        lines = []
    for _, controllers, group in lines:
        if "memory" in controllers.split(","):
            return _existing(mounted / "memory", group, _FIRST)
    for _, controllers, group in lines:
        if not controllers and (mounted / "cgroup.controllers").exists():
            return _existing(mounted, group, _SECOND)
    raise CannotEnforce(
        "the resource memory cannot be enforced: this system has no control groups for memory in "
        f"{mounted} (Linux only). Leave it out"
    )


def _existing(root: Path, group: str, files: _Files) -> tuple[Path, _Files]:
    """In a container the path may be the host's; then its group is at the root."""
    path = root / group.strip("/")
    return (path if path.is_dir() else root), files
