"""A worker's process: what runs in it, and how it ends.

It ends as an interpreter does, but for taking everything apart.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import IO, Any, NoReturn, Protocol

from holdfast.dataclass import dataclass
from holdfast.forked import exit_status
from holdfast.runtime import c_stdio, learning
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import LARGEST_FROM_WORKER

# The exit status of a worker that failed outside of what it was to run (EX_SOFTWARE).
FAULT = 70
# Longer than the controller waits for us: a script that is suspended (Ctrl-Z) goes on some time.
_REST_S = 600.0
# MLflow registers when it is imported that the active run is to end: one that user code starts
# and leaves open would seem to run for ever.
_OF_LIBRARIES = (("mlflow", "end_run"),)
_BUFFERED = frozenset({io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom})


@dataclass(frozen=True, slots=True)
class ExitFunction:
    """What a module registered when it was imported: each worker does so at its end, too."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]

    def register(self) -> None:
        atexit.register(self.function, *self.arguments, **self.named)


class WorkerEntry(Protocol):
    """What runs in a worker."""

    def prepare(self, payload: bytes) -> None:
        """Load what all workers share."""

    def run(self, channel: Channel) -> None:
        """Be one worker, until there is nothing left to do."""


def find_entry(name: str) -> WorkerEntry:
    module, attribute = name.split(":")
    entry: WorkerEntry = getattr(import_module(module), attribute)
    return entry


# Files that user's modules have open: once they are frozen, the collector shows them no more.
Inheritance = Sequence["weakref.ref[IO[Any]]"]


def bequeath() -> Inheritance:
    """The open files of this process, for the workers that will be forked from it.

    What is in their buffers is written now: each worker would write it once more.
    """
    files = _open_files()
    _flush(files)
    c_stdio.flush()
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    # With their buffers; a worker flushes them in any case, and twice would take it 0.1 ms.
    standard = [*streams, *gc.get_referents(*streams)]
    return [weakref.ref(file) for file in files if file not in standard]


def be_worker(
    entry: WorkerEntry,
    fd: int,
    inheritance: Inheritance = (),
    exit_functions: Iterable[ExitFunction] = (),
) -> NoReturn:
    """Run `entry` in this process over the socket `fd`, then end without returning.

    `exit_functions` are those of modules that this worker would else have imported itself.
    """
    status = FAULT
    _forget_exit_functions()
    for found in exit_functions:
        found.register()
    # Programs that user code starts have no business with it, and would keep it open.
    os.set_inheritable(fd, False)
    learning.begin_watch()
    try:
        entry.run(Channel(fd, largest_sent=LARGEST_FROM_WORKER, rest_s=_REST_S))
        status = 0
    except SystemExit as stop:
        status = exit_status(stop)
    except BaseException:
        # Nobody above us is left to be told but the trial's stderr.
        traceback.print_exc()
    finally:
        _leave(status, inheritance)


def _forget_exit_functions() -> None:
    """What was registered before the fork is the warm parent's to do, at its own end: but for what
    a library registers when it is imported, for what user code begins with it.

    `weakref.finalize`, which temporary directories use, registers itself only once: it is made to
    do so again when user code first needs it.
    """
    atexit._clear()
    for module, name in _OF_LIBRARIES:
        function = getattr(sys.modules.get(module), name, None)
        if callable(function):  # else it is a module of the user's that is called so
            atexit.register(function)
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


def _leave(status: int, inheritance: Inheritance) -> NoReturn:
    """End this process with `status`, having done what an interpreter does at its end.

    First the threads, whose executors tell their processes to end, then what was registered, then
    the files that are still open.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        files = _open_files()
        files += [file for ref in inheritance if (file := ref())]
        _flush(files)
        c_stdio.flush()
    finally:
        os._exit(status)


def _open_files() -> list[IO[Any]]:
    """The files with a buffer that the collector sees.

    In a worker it has not many objects to look through, since those of the warm parent are
    frozen: this takes 0.02 ms, and 0.6 ms where the trial itself has imported numpy.
    """
    return [found for found in gc.get_objects() if type(found) in _BUFFERED]


def _flush(files: Iterable[IO[Any]]) -> None:
    """Write what is in the buffers of `files`, and of what is printed to."""
    streams: tuple[Any, ...] = (sys.__stdout__, sys.__stderr__, sys.stdout, sys.stderr)
    for file in (*files, *streams):
        try:
            file.flush()
        except Exception:
            # It is closed, or the disk is full, or a stream is None or what the user put there,
            # which may raise anything.
            continue
