"""Prepares the memory that workers are forked from.

A successor of the warm parent imports the modules that trials will need. It was forked for this
purpose, so side effects of an import affect no other process. It only imports modules and calls
none of their functions. If an import leaves something behind that workers must not share, the
process is not used.

The warm parent's memory is joined to huge pages (Linux), so that a fork copies a smaller page
table. After `import torch` 140 MB of heap are in 36,000 pages of 4 KiB. Copying their entries at a
fork and removing them at the worker's end took 22 ms of CPU per worker, and 7 ms with huge pages
(Linux 6.18, 150 forks in turn). Joining them takes 0.1 to 0.3 s of CPU and, for the workers that
live by then, a second copy of what they share. So it begins only once workers start in quick
succession, and takes no more CPU after each fork than the fork itself.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.forked import children_end_here
from holdfast.runtime import interpreter, process_control
from holdfast.runtime.learning import is_installed
from holdfast.runtime.orphans import children
from holdfast.runtime.worker import ExitFunction

HUGE_BYTES = 1 << 21
# From include/uapi/asm-generic/mman-common.h, Linux 6.1: join the pages of a range now.
_MADV_COLLAPSE = 25
_SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"
# Smaller processes fork in less than a millisecond.
_LEAST_BYTES = 48 << 20
_FORKS, _SOON_S = 8, 1.0


class HugePages:
    """Joins this process's pages little by little, after forks.

    `clock` and `spent` return seconds of time and of this thread's CPU. `collapse` joins the pages
    of one huge page at an address.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        find: Callable[[], list[int]] | None = None,
        collapse: Callable[[int], None] | None = None,
    ) -> None:
        self._clock = clock
        self._spent = spent
        self._find = find or _find
        self._collapse = collapse
        self._forks = 0
        self._forked_at = -_SOON_S
        self._left: list[int] | None = None

    def after_fork(self, took_s: float) -> None:
        """Join pages for `took_s` seconds of CPU, as long as the fork took, if it is time to."""
        now, before = self._clock(), self._forked_at
        self._forked_at = now
        self._forks = self._forks + 1 if now - before <= _SOON_S else 0
        if self._forks < _FORKS:
            return
        if self._left is None:
            self._left = self._find()
        until = self._spent() + took_s
        while self._left and self._spent() < until:
            self._join(self._left.pop())

    def _join(self, address: int) -> None:
        if self._collapse is None:
            self._collapse = _kernels_collapse()
        self._collapse(address)


def huge_ranges(maps: Iterable[str]) -> list[int]:
    """The addresses of whole huge pages in the heap and in other private memory without a file,
    from the lines of /proc/self/maps."""
    found: list[int] = []
    for line in maps:
        span, access, _, _, _, *name = line.split(maxsplit=5)
        if access == "rw-p" and (not name or name[0].strip() == "[heap]"):
            start, end = (int(bound, 16) for bound in span.split("-"))
            first = -(-start // HUGE_BYTES) * HUGE_BYTES
            found += range(first, end - HUGE_BYTES + 1, HUGE_BYTES)
    return found


def _find() -> list[int]:
    """Nothing in a small process, without Linux, and where huge pages are switched off."""
    from holdfast.runtime.usage.used import resident_bytes

    if sys.platform != "linux" or resident_bytes() < _LEAST_BYTES:
        return []
    try:
        with open(_SETTING) as setting, open("/proc/self/maps") as maps:
            return [] if "[never]" in setting.read() else huge_ranges(maps)
    except OSError:
        return []


def _kernels_collapse() -> Callable[[int], None]:
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def collapse(address: int) -> None:
        # An error changes nothing: an older kernel, a range without pages, or too little memory.
        madvise(address, HUGE_BYTES, _MADV_COLLAPSE)

    return collapse


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
        stack.enter_context(interpreter.one_thread(os.environ))
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
    unsafe = interpreter.unsafe_to_fork()
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
    process_control.flush()
