"""Entries for worker processes of these tests: a warm parent imports this module by its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.runtime import orphans
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message
from tests.rig.workers.worker_entry import Obeying, Threaded

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
TIDY = "import pathlib, signal, sys; signal.signal(signal.SIGTERM, lambda *_: tidy())"
WAITS = "print(flush=True)\nwhile True: signal.pause()"


class Deserting(Obeying):
    """Starts processes as its messages say, and answers with their process ids."""

    def obey(self, message: Message, channel: Channel) -> Message | None:
        match message:
            case ["popen", str(way)]:
                return ["born", WAYS[way]()]
            case ["tidying", str(path)]:
                return ["born", _tidying(path)]
            case ["staying", str(path)]:
                return ["born", _staying(path)]
            case _:
                return super().obey(message, channel)


class Spawned(Deserting, Threaded):
    """The same if no worker can be forked."""


class Serving(Deserting):
    """Its module starts two servers for all trials, in their own sessions, one of them through
    another process.

    The payload names a file for their process ids.
    """

    def prepare(self, payload: bytes) -> None:
        Path(os.fsdecode(payload)).write_text(f"{_session()} {_with_child()}")


class Patient(Deserting):
    """Its warm parent gives orphans ten minutes to end."""

    def prepare(self, payload: bytes) -> None:
        orphans.GRACE_S = orphans.ORPHAN_DEADLINE_S = 600.0


class Signalled(Obeying):
    """Each worker gets the order to end at the moment of its fork."""

    def prepare(self, payload: bytes) -> None:
        os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))


def _program(code: str, **options: object) -> int:
    """Start a program, wait until it is up; its process id."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        stdout=subprocess.PIPE,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )
    process.stdout.readline()
    return int(process.pid)


def _session() -> int:
    return _program(f"import signal\n{WAITS}")


def _session_without_environment() -> int:
    return _program(f"import signal\n{WAITS}", env={})


def _stubborn() -> int:
    return _program(f"{STUBBORN}\n{WAITS}")


def _tidying(path: str) -> int:
    tidy = f"def tidy(): pathlib.Path({path!r}).write_text('tidied'); sys.exit()"
    return _program(f"{tidy}\n{TIDY}\n{WAITS}")


def _staying(path: str) -> int:
    """It writes into a FIFO when it is asked to end, and stays."""
    tidy = f"def tidy(): pathlib.Path({path!r}).write_text('asked')"
    return _program(f"{tidy}\n{TIDY}\n{WAITS}")


def _fork() -> int:
    """As a process of multiprocessing that calls setsid."""
    return _forked(os.getpid)


def _daemon() -> int:
    """A classic daemon: the process in between ends, so that it has no parent left."""
    return _forked(os.fork)


def _daemon_of_a_daemon() -> int:
    return _forked(lambda: os.fork() or _again())


def _again() -> int:
    os.setsid()
    return os.fork()


def _forked(further: Callable[[], int]) -> int:
    """Fork; the child leaves the session and calls `further`. The process id of the last one."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if further() in (0, os.getpid()):
            os.write(writing, str(os.getpid()).encode())
            while True:
                signal.pause()
        os._exit(0)
    os.close(writing)
    told = int(os.read(reading, 100))
    os.close(reading)
    if told != first:
        os.waitpid(first, 0)
    return told


def _with_child() -> int:
    """The last process of a tree: its parent stays too."""
    code = "import os, signal; pid = os.fork(); pid or print(os.getpid(), flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code + "while True: signal.pause()"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    return int(process.stdout.readline())


WAYS = {
    "session": _session,
    "session without environment": _session_without_environment,
    "stubborn": _stubborn,
    "fork": _fork,
    "daemon": _daemon,
    "daemon of a daemon": _daemon_of_a_daemon,
    "with a child": _with_child,
}

DESERTING = Deserting()
SPAWNED = Spawned()
SERVING = Serving()
PATIENT = Patient()
SIGNALLED = Signalled()
