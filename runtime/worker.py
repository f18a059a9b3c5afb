"""A worker's process: runs its entry, and ends like an interpreter, but without tearing down
modules and objects."""

from __future__ import annotations

import atexit
import gc
import io
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import IO, Any, NoReturn, Protocol

from holdfast import started_by_import
from holdfast.dataclass import dataclass
from holdfast.forked import children_end_here, exit_status
from holdfast.runtime import learning, process_control
from holdfast.runtime.interpreter import python_command
from holdfast.runtime.process_control import from_words, hold, words
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import LARGEST_FROM_WORKER

# The exit status of a worker that failed outside the entry (EX_SOFTWARE).
FAULT = 70
# Longer than the controller waits for a worker: a suspended script (Ctrl-Z) resumes some time.
_PAUSE_S = 600.0
# At its import, MLflow registers a function that ends the active run. Without it, a run that user
# code starts and leaves open would seem to run forever.
_OF_LIBRARIES = (("mlflow", "end_run"),)
# What `weakref.finalize` had registered before the fork.
_before_fork: list[Any] = []
_BUFFERED = frozenset({io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom})


@dataclass(frozen=True, slots=True)
class ExitFunction:
    """A function that a module registered with `atexit` at its import; each worker calls it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]

    def register(self) -> None:
        atexit.register(self.function, *self.arguments, **self.named)


class WorkerEntry(Protocol):
    """The code that runs in a worker."""

    def prepare(self, payload: bytes) -> None:
        """Load the data that all workers share."""

    def run(self, channel: Channel) -> None:
        """Run one worker until its work is done."""


def find_entry(name: str) -> WorkerEntry:
    module, attribute = name.split(":")
    entry: WorkerEntry = getattr(import_module(module), attribute)
    return entry


# The files that the user's modules have opened before the fork. After `gc.freeze()` the collector
# does not list them.
OpenFiles = Sequence["weakref.ref[IO[Any]]"]


def flush_open_files() -> OpenFiles:
    """The open files of this process, for the workers that will be forked from it.

    This flushes their buffers: otherwise each worker would write the contents again.
    """
    files = _find_open_files()
    _flush(files)
    process_control.flush()
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    # A worker flushes the standard streams in any case; flushing them twice would take 0.1 ms.
    standard = [*streams, *gc.get_referents(*streams)]
    return [weakref.ref(file) for file in files if file not in standard]


def be_worker(
    entry: WorkerEntry,
    fd: int,
    open_files: OpenFiles = (),
    exit_functions: Iterable[ExitFunction] = (),
) -> NoReturn:
    """Run `entry` in this process over the socket `fd`, then end without returning.

    `exit_functions` are those that preloaded modules registered at their import.
    """
    status = FAULT
    _forget_exit_functions()
    for found in exit_functions:
        found.register()
    # Programs that user code starts would keep it open.
    os.set_inheritable(fd, False)
    learning.begin_watch()
    try:
        entry.run(Channel(fd, largest_sent=LARGEST_FROM_WORKER, pause_s=_PAUSE_S))
        status = 0
    except SystemExit as stop:
        status = exit_status(stop)
    except BaseException:
        # The entry has failed to report the error, so it goes to the trial's stderr.
        traceback.print_exc()
    finally:
        _end(status, open_files)


def _forget_exit_functions() -> None:
    """Remove the exit functions that were registered before the fork: the warm parent calls them
    at its own end. Exceptions are those of `_OF_LIBRARIES`, which clean up after user code.

    `weakref.finalize`, which temporary directories use, registers itself only once. Here it is
    reset, so that it registers itself again at its next use. What it held is kept, unused: to free
    what torch registers, the kernel would copy 600 shared pages, in 2 ms.
    """
    atexit._clear()
    for module, name in _OF_LIBRARIES:
        function = getattr(sys.modules.get(module), name, None)
        if callable(function):  # otherwise the user has a module of this name
            atexit.register(function)
    _before_fork.append(weakref.finalize._registry)  # type: ignore[attr-defined]
    weakref.finalize._registry = {}  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


def _end(status: int, open_files: OpenFiles) -> NoReturn:
    """End this process with `status`, after the steps of an interpreter's end.

    It first joins the threads (executors end their processes there), then calls exit functions,
    then flushes open files.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        files = _find_open_files()
        files += [file for ref in open_files if (file := ref())]
        _flush(files)
        process_control.flush()
    finally:
        os._exit(status)


def _find_open_files() -> list[IO[Any]]:
    """The buffered files that the garbage collector lists.

    In a worker it lists few objects, because those of the warm parent are frozen: this takes 0.02
    ms, and 0.6 ms if the trial itself has imported numpy.
    """
    return [found for found in gc.get_objects() if type(found) in _BUFFERED]


def _flush(files: Iterable[IO[Any]]) -> None:
    """Flush `files` and the standard streams."""
    names = ("__stdout__", "__stderr__", "stdout", "stderr")  # user code may have deleted one
    streams: list[Any] = [getattr(sys, name, None) for name in names]
    for file in (*files, *streams):
        try:
            file.flush()
        except Exception:
            # It is closed, the disk is full, or the user has replaced the stream by None or by an
            # object that may raise anything.
            continue


class FreshInterpreters:
    """Starts workers of `entry` (`module:attribute`), which get `payload` through a file."""

    def __init__(
        self, entry: str, payload: bytes, inherited: Sequence[int], held: Sequence[str]
    ) -> None:
        self._entry = entry
        self._inherited = inherited
        self._held = held
        self._payload = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as we are
        self._payload.write(payload)
        self._payload.flush()

    def start(self, fd: int) -> int:
        """Start a worker that uses the socket `fd` and leads a process group. Returns its pid.

        Raises OSError.
        """
        payload = self._payload.fileno()
        command = python_command(
            "holdfast.runtime.worker:main_fresh",
            [self._entry, str(fd), str(payload), str(os.getpid()), words(self._held)],
        )
        process = subprocess.Popen(
            command, pass_fds=(fd, payload, *self._inherited), process_group=0
        )
        process.returncode = 0  # the warm parent reaps it like every worker
        return process.pid


def main_fresh() -> NoReturn:
    """Main function of a worker in a fresh interpreter."""
    name, fd, payload, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    process_control.die_with_parent(parent)
    started_by_import.refuse_from_now_on()
    hold(from_words(sys.argv[5]))
    process_control.adopt_orphans()
    # The environment is the warm parent's, including its limits for threads.
    entry = find_entry(name)
    with children_end_here():
        entry.prepare(os.pread(payload, os.fstat(payload).st_size, 0))
    be_worker(entry, fd)
