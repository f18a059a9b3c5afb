"""Runs a user's script as a separate process that communicates with a test.

The script calls `mark`, `wait_at` and `note`; the test waits for the marks, holds and opens the
gates and reads the notes. Nothing polls: marks come over a FIFO, gates are file locks, the end of
a process is read from its pidfd. Linux only.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from holdfast.dataclass import dataclass

FOLDER = "HOLDFAST_TEST_FOLDER"
MARKS = "HOLDFAST_TEST_MARKS"
# Only a script that hangs takes this long, also on a busy machine.
LONGEST_S = 200.0
# What the script has started ends with it, or soon after.
_ENDS_WITHIN_S = 30.0
# Any process of the machine, of which another test may hold one up.
_EXITS_WITHIN_S = 5.0
_NOTES = "notes"
_END = "script-ended"
_WARM = ("holdfast: warm parent", "holdfast: trial")
# PF_EXITING, from the kernel's include/linux/sched.h.
_EXITING = 0x4


# -- what the script calls ------------------------------------------------------------------------


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def mark(*words: object) -> None:
    """Tell the test that something has happened."""
    # One write of less than PIPE_BUF bytes: lines of several processes never mix.
    fd = os.open(os.environ[MARKS], os.O_WRONLY)
    try:
        os.write(fd, " ".join(map(str, words)).encode() + b"\n")
    finally:
        os.close(fd)


def wait_at(gate: str) -> None:
    """Wait until the test has opened the gate; a gate that it never closed is open."""
    fd = os.open(_folder() / f"gate-{gate}", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def note(**facts: Any) -> None:
    """Write a note that survives any crash: what the script has just learned or done."""
    fd = os.open(_folder() / _NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, json.dumps(facts).encode() + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)


# -- what the test calls --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the script: its role in holdfast, and a pidfd that becomes readable at its
    end."""

    pid: int
    role: str
    pidfd: int

    def kill(self) -> None:
        """Kill the process; it may have died with its parent already."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)

    def signal(self, signum: int) -> None:
        signal.pidfd_send_signal(self.pidfd, signum)

    def ends(self, within_s: float = LONGEST_S) -> bool:
        return bool(select.select([self.pidfd], [], [], within_s)[0])


class UserScript:
    """Runs `python path arguments...` and knows all its processes.

    `folder` has marks, gates and notes; several scripts, one after the other, may share it. A
    command `prefix`, such as nsenter, must become Python itself.
    `processes` returns these `roles`: script, agent, warm, successor, worker, projector, uploader,
    tracker process, other.
    """

    def __init__(
        self,
        path: Path,
        *arguments: str,
        folder: Path,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._marks: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._kept: list[str] = []
        self._identity = os.urandom(8).hex()
        fifo = folder / f"marks-{self._identity}"
        os.mkfifo(fifo)
        # Open for reading and writing, so that it never ends when a writer does.
        self._fifo = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
        self._stop, self._stopped = os.pipe()
        with _signals_as_in_a_terminal():
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-u", "-W", "error", str(path), *arguments],
                env={
                    **os.environ,
                    **(environ or {}),
                    FOLDER: str(folder),
                    MARKS: str(fifo),
                },
                cwd=cwd or folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
        self._written = threading.Condition()
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._threads = [
            threading.Thread(target=self._read_marks, daemon=True),
            threading.Thread(target=self._read_text, args=("stdout",), daemon=True),
            threading.Thread(target=self._read_text, args=("stderr",), daemon=True),
            threading.Thread(target=self._wait, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def stdout(self) -> str:
        """Its output; complete after `ends`."""
        return "".join(self._texts["stdout"])

    @property
    def stderr(self) -> str:
        return "".join(self._texts["stderr"])

    def wait_for(self, text: str, within_s: float = LONGEST_S) -> str:
        """The next mark that begins with `text`; others are kept for later calls.

        Raises AssertionError if the script ends, or time runs out, before that mark.
        """
        for at, kept in enumerate(self._kept):
            if kept.startswith(text):
                return self._kept.pop(at)
        while True:
            try:
                found = self._marks.get(timeout=within_s)
            except queue.Empty:
                raise AssertionError(self._story(f"no mark {text!r} in {within_s} s")) from None
            if found.startswith(text):
                return found
            self._kept.append(found)
            if found == _END:
                raise AssertionError(self._story(f"it ended before the mark {text!r}"))

    def said(self, text: str, within_s: float = LONGEST_S, *, stream: str = "stderr") -> str:
        """Wait until it has written a line with `text`; the line."""
        written = self._texts[stream]
        with self._written:
            self._written.wait_for(
                lambda: (
                    any(text in line for line in written) or self.process.returncode is not None
                ),
                within_s,
            )
        if self.process.returncode is not None:
            self.finish_reading()
        for line in written:
            if text in line:
                return line
        raise AssertionError(self._story(f"no line with {text!r} in {within_s} s"))

    def says(self, pattern: str, times: int, within_s: float = LONGEST_S) -> None:
        """Wait until stderr has so many matches of the pattern, or it has ended, or time runs
        out."""
        with self._written:
            self._written.wait_for(
                lambda: (
                    self.process.returncode is not None
                    or len(re.findall(pattern, self.stderr)) >= times
                ),
                within_s,
            )

    def ends(self, within_s: float = LONGEST_S) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._story(f"it did not end in {within_s} s")) from None
        return code

    def succeeds(self, within_s: float = LONGEST_S) -> Self:
        """Wait for its end; raises AssertionError with what it wrote if it failed."""
        code = self.ends(within_s)
        self.finish_reading()
        assert code == 0, self._story(f"it ended with {code}")
        return self

    def finish_reading(self) -> None:
        """Wait until all that it wrote has been read. Only once no process of it is left."""
        for thread in self._threads[1:]:
            thread.join(_ENDS_WITHIN_S)

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def suspend(self) -> None:
        """Stop the script until it is continued. Its threads may run for a moment after the
        signal."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """SIGKILL to the script alone."""
        self.process.kill()
        self.process.wait()

    def dies(self) -> None:
        """Kill the script (SIGKILL), and wait until none of its processes is left.

        A worker may live a moment longer, and would continue while the test changes files.
        """
        self.kill()
        assert self.left() == []

    def kill_all(self) -> None:
        for process in self.processes():
            process.kill()

    def processes(self, role: str | None = None) -> list[Process]:
        """The processes that live now; closed by `left`, or at the end of the test process."""
        found = []
        for pid in _pids():
            pidfd = _pidfd(pid)
            if pidfd is None:
                continue
            kind = self._role(pid)
            if kind is None or (role is not None and kind != role):
                os.close(pidfd)
            else:
                found.append(Process(pid=pid, role=kind, pidfd=pidfd))
        return found

    def left(self, within_s: float = _ENDS_WITHIN_S) -> list[Process]:
        """The processes that still live after this many seconds."""
        ends_by = time.monotonic() + within_s
        empty_looks = 0
        # Neither a process that is just exiting nor one whose program is just being replaced
        # (execve) is seen. So an empty look counts once the former are gone, and if the next look
        # is empty, too.
        while empty_looks < 2:
            found = self.processes()
            left_s = ends_by - time.monotonic()
            if found and left_s <= 0:
                return found
            for process in found:
                process.ends(left_s)
                os.close(process.pidfd)
            _wait_for_exiting()
            empty_looks = 0 if found else empty_looks + 1
        return []

    def notes(self) -> list[dict[str, Any]]:
        """The notes in order, without a line that a crash has cut off."""
        return read_notes(self.folder)

    def close(self) -> None:
        """End all remaining processes."""
        for process in self.processes():
            process.kill()
        self.process.wait()
        os.write(self._stopped, b"x")
        for thread in self._threads:
            thread.join(_ENDS_WITHIN_S)
        for fd in (self._fifo, self._stop, self._stopped):
            os.close(fd)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _role(self, pid: int) -> str | None:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        except (OSError, IndexError):
            return None
        if self._identity.encode() not in environ or stat[0] == "Z":
            return None
        if pid == self.process.pid:
            return "script"
        if "projector.process:main" in command or "holdfast: projector" in command:
            return "projector"
        if "uploader.process:main" in command or "holdfast: uploader" in command:
            return "uploader"
        if "trackers.process:main" in command or "holdfast: tracker" in command:
            return "tracker_process"
        if "holdfast.agent" in command:
            return "agent"
        if "runtime.warm" in command or command.startswith(_WARM):
            if int(stat[1]) == self.process.pid or _is_agent(int(stat[1])):
                return "warm"
            # A worker writes into its trial's folder, a successor of the warm parent as that does.
            return "worker" if _stdout(pid) != _stdout(int(stat[1])) else "successor"
        return "other"

    def _read_marks(self) -> None:
        text = b""
        while self._fifo in select.select([self._fifo, self._stop], [], [])[0]:
            *lines, text = (text + os.read(self._fifo, 1 << 16)).split(b"\n")
            for line in lines:
                self._marks.put(line.decode())

    def _read_text(self, name: str) -> None:
        stream = getattr(self.process, name)
        for line in stream:
            with self._written:
                self._texts[name].append(line)
                self._written.notify_all()

    def _wait(self) -> None:
        self.process.wait()
        os.write(self._fifo, f"{_END}\n".encode())  # after all marks that the script has written
        with self._written:
            self._written.notify_all()

    def _story(self, problem: str) -> str:
        return (
            f"{problem}\n-- marks: {self._kept}\n-- stdout:\n{self.stdout}\n"
            f"-- stderr:\n{self.stderr}"
        )


class Gate:
    """Holds back every `wait_at(name)` until it is opened."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder / f"gate-{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_notes(folder: Path) -> list[dict[str, Any]]:
    path = folder / _NOTES
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def acknowledged(notes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The notes about rows whose `report()` has returned."""
    return [fact for fact in notes if fact.get("what") == "acknowledged"]


@contextmanager
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Restore signals that are ignored and would be in child processes: SIGHUP under nohup, SIGINT
    after an &."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no one else may change them
        return
    ignored = [n for n in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_IGN]
    for signum in ignored:
        signal.signal(signum, signal.SIG_DFL)
    try:
        yield
    finally:
        for signum in ignored:
            signal.signal(signum, signal.SIG_IGN)


def _is_agent(pid: int) -> bool:
    try:
        return b"holdfast.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _stdout(pid: int) -> str:
    """The target of its standard output."""
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return ""


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _wait_for_exiting() -> None:
    """Wait for all processes that are just exiting.

    The kernel takes away their memory first, and with it the environment that tells whose they
    are. A moment later it closes their files and releases their locks; or not yet, if a thread
    waits for a disk: then the process is a zombie already, but its pidfd is not readable.
    """
    for pid in _pids():
        pidfd = _pidfd(pid)
        if pidfd is None:
            continue
        with suppress(OSError):
            facts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            if int(facts[6]) & _EXITING:
                select.select([pidfd], [], [], _EXITS_WITHIN_S)
        os.close(pidfd)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
