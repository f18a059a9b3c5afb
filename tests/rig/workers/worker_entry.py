"""Entries for worker processes of tests: a warm parent imports this module and forks from it."""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.runtime import interpreter, learning
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message


class Obeying:
    """A worker that performs its messages one after the other."""

    def __init__(self) -> None:
        self.payload = b""

    def prepare(self, payload: bytes) -> None:
        self.payload = payload

    def run(self, channel: Channel) -> None:
        while (message := channel.receive()) is not None:
            if message[0] == "return":
                return
            answer = self.obey(message, channel)
            if answer is not None:
                channel.send(answer)

    def obey(self, message: Message, channel: Channel) -> Message | None:
        match message:
            case ["echo", value]:
                return ["echo", value]
            case ["tell"]:
                return ["told", facts()]
            case ["payload"]:
                return ["payload", self.payload]
            case ["flood", int(size_bytes)]:
                # The beginning of a frame, which announces its length.
                os.write(channel.fileno(), size_bytes.to_bytes(4, "big"))
            case ["pool", float(cpus)]:
                return ["pool", interpreter.release_limits(os.environ, cpus)]
            case ["write", int(fd)]:
                os.write(fd, b".")
            case ["bear"]:
                return ["born", _bear()]
            case ["call", str(function), *arguments]:
                module, name = function.split(":")
                return ["called", getattr(import_module(module), name)(*arguments)]
            case ["learned"]:
                learned = learning.end_watch()
                return ["learned", [] if learned is None else learned[0]]
            case ["at exit", str(path), str(text)]:
                atexit.register(_append, path, text)
                return ["registered"]
            case ["temporary", str(where)]:
                self.kept = tempfile.TemporaryDirectory(dir=where)
                return ["temporary", self.kept.name]
            case _:
                _end(message)
        return None


def facts() -> dict[str, Any]:
    """Facts about this process."""
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "arguments": sys.argv,
        "group": os.getpgid(0),
        "fds": open_fds(),
        "environ": dict(os.environ),
        "frozen": gc.get_freeze_count(),
        "collects": gc.isenabled(),
    }


_kept: list[bytes] = []


def keep_bytes(count: int) -> int:
    """Allocate this memory, write to it, and keep it."""
    _kept.append(b"x" * count)
    return count


def burn_s(seconds: float) -> float:
    """Use this CPU time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))
    return seconds


def _end(message: Message) -> None:
    match message:
        case ["exit", status]:
            sys.exit(status)
        case ["leave", int(status)]:
            os._exit(status)
        case ["die of", int(signum)]:
            os.kill(os.getpid(), signum)
        case ["crash"]:
            ctypes.string_at(0)
        case ["raise", str(text)]:
            raise ValueError(text)
        case ["hang"]:
            signal.pause()
        case _:
            raise ValueError(f"not for this worker: {message!r}")


def open_fds() -> dict[str, str]:
    """The open descriptors of this process, and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that listed the folder
    return found


def _bear() -> int:
    """Fork a child that does nothing until it is killed; its process id."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def _append(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


class Refusing(Obeying):
    """Cannot be loaded."""

    def prepare(self, payload: bytes) -> None:
        raise LookupError("the data set is not there")


class Unspeakable(Obeying):
    """Cannot be loaded, and its error cannot be shown."""

    def prepare(self, payload: bytes) -> None:
        class Silent(Exception):
            def __str__(self) -> str:
                raise RuntimeError("not even this works")

        raise Silent


class Leaving(Obeying):
    """Ends the warm parent while it loads."""

    def prepare(self, payload: bytes) -> None:
        os._exit(3)


class Abandoning(Obeying):
    """Ends the warm parent, but leaves a child that holds the connection open."""

    def prepare(self, payload: bytes) -> None:
        _bear()
        os.kill(os.getpid(), signal.SIGKILL)


class Hanging(Obeying):
    """Never gets ready."""

    def prepare(self, payload: bytes) -> None:
        while True:
            signal.pause()


class Threaded(Obeying):
    """Its module runs a native thread that Python does not know."""

    def prepare(self, payload: bytes) -> None:
        super().prepare(payload)
        if os.environ.get(_STARTED) != str(os.getppid()):
            os.environ[_STARTED] = str(os.getpid())
            libc = ctypes.CDLL(None)
            thread = ctypes.c_ulong()
            start = ctypes.cast(libc.pause, ctypes.c_void_p)
            libc.pthread_create(ctypes.byref(thread), None, start, None)


_STARTED = "HOLDFAST_TEST_THREAD"


class Barren(Obeying):
    """Runs where the system refuses more processes."""

    def prepare(self, payload: bytes) -> None:
        os.fork = _no_room


def _no_room() -> int:
    raise BlockingIOError(11, "Resource temporarily unavailable")


class Tidy(Obeying):
    """Registers a function for the end of the warm parent; the payload names a file for it."""

    def prepare(self, payload: bytes) -> None:
        record: dict[str, str] = json.loads(payload)
        atexit.register(_append, record["file"], "parent ")
        self.folder = tempfile.TemporaryDirectory(dir=record["folder"], prefix="parent-")


class Failing(Obeying):
    """Loads once; a later warm parent finds that it cannot. The payload names a marker file."""

    def prepare(self, payload: bytes) -> None:
        marker = Path(os.fsdecode(payload))
        if marker.exists():
            raise LookupError("the data set is gone")
        marker.touch()


OBEYING = Obeying()
REFUSING = Refusing()
UNSPEAKABLE = Unspeakable()
LEAVING = Leaving()
ABANDONING = Abandoning()
HANGING = Hanging()
THREADED = Threaded()
BARREN = Barren()
TIDY = Tidy()
FAILING = Failing()


def serve(channel: Channel) -> None:
    """Main function of a service: the same, until its connection ends."""
    OBEYING.run(channel)
