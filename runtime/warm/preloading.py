"""Imports the modules that trials will need, in a process from which their workers are forked.

The process was forked for this purpose, so side effects of an import affect no other process. It
only imports modules and calls none of their functions. If an import leaves something behind that
workers must not share, the process is not used.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.forked import children_end_here
from holdfast.runtime import c_stdio, threads
from holdfast.runtime.orphans import children
from holdfast.runtime.provenance import is_installed
from holdfast.runtime.worker import ExitFunction

# A module that registers an exit function of one of these has created files. All workers would
# share the files, and the first one to end would remove them.
_REMOVERS = frozenset({"os", "posix", "shutil", "tempfile"})
_installed = cache(is_installed)


class UnsafeToFork(Exception):
    """The import of `module` has made forking this process unsafe."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(why)
        self.module = module


def preload(
    names: Iterable[str],
    directory: str,
    *,
    begins: Callable[[str], None],
    fails: Callable[[str, str], None],
) -> list[ExitFunction]:
    """Import those modules of `names` that are installed; skip those whose import fails.

    `directory` is the working directory meanwhile, because some modules read settings there; ""
    means this process's own. `begins` is called before each import, which may never end, and
    `fails` with the reason if one fails. Raises UnsafeToFork.
    """
    before = _Traces.now()
    with ExitStack() as stack:
        stack.enter_context(threads.one_thread(os.environ))
        stack.enter_context(_silence())
        stack.enter_context(chdir(directory or os.curdir))
        registered = stack.enter_context(_exit_functions())
        for name in names:
            if name in sys.modules or not _installed(name.partition(".")[0]):
                continue
            begins(name)
            try:
                with children_end_here():
                    import_module(name)
            except (Exception, SystemExit) as error:
                # A trial that imports the module gets the error itself.
                fails(name, type(error).__name__)
            harm = _harm(before, registered)
            if harm:
                raise UnsafeToFork(name, harm)
    return registered


@dataclass(frozen=True, slots=True)
class _Traces:
    """The side effects of imports on this process."""

    open_files: frozenset[str]
    children: frozenset[int]
    folders: int

    @classmethod
    def now(cls) -> _Traces:
        registry = list(weakref.finalize._registry.values())  # type: ignore[attr-defined]
        folders = sum(_removes_files(found.func) for found in registry)
        return cls(frozenset(_connections()), frozenset(children()), folders)


def _harm(before: _Traces, registered: Iterable[ExitFunction]) -> str:
    """The reason why workers must not be forked after this import; "" if they may."""
    unsafe = threads.unsafe_to_fork()
    if unsafe:
        return f"it started the thread {', '.join(unsafe)}"
    now = _Traces.now()
    if now.children - before.children:
        return "it started a process"
    opened = sorted(now.open_files - before.open_files)
    if opened:
        return f"it opened {opened[0]}"
    if now.folders > before.folders or any(_removes_files(found.function) for found in registered):
        return "it created files that it removes at exit"
    return ""


def _removes_files(function: Callable[..., Any]) -> bool:
    return getattr(function, "__module__", None) in _REMOVERS


def _connections() -> Iterator[str]:
    """Open descriptors other than files and folders: sockets, pipes, devices such as a GPU."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor that listed this folder is closed
            mode = os.fstat(int(name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                target = os.readlink(f"/proc/self/fd/{name}")
                if target not in _PLAIN_DEVICES:
                    yield target


_PLAIN_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"})


@contextmanager
def _exit_functions() -> Iterator[list[ExitFunction]]:
    """Collect the functions that are registered with `atexit` inside this block."""
    registered: list[ExitFunction] = []
    register = atexit.register

    def note(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        registered.append(ExitFunction(function, arguments, named))
        return register(function, *arguments, **named)

    atexit.register = note
    try:
        yield registered
    finally:
        atexit.register = register


@contextmanager
def _silence() -> Iterator[None]:
    """Discard output. The first trial that imported the modules has their output in its files; a
    second copy would belong to no trial."""
    _flush()
    kept = [(fd, os.dup(fd)) for fd in (1, 2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd, _ in kept:
            os.dup2(null, fd)
        yield
    finally:
        _flush()
        for fd, copy in kept:
            os.dup2(copy, fd)
        for descriptor in (null, *(copy for _, copy in kept)):
            os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    c_stdio.flush()
