"""Starts other Python interpreters like this one, limits the threads of numerical libraries, and
decides by a process's native threads if it may be forked."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

# A worker gets its number of threads in these: a library reads no other one, or this one if it has
# none of its own.
_GIVEN = (
    "OMP_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "LOKY_MAX_CPU_COUNT",  # joblib's n_jobs=-1
    "POLARS_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",  # tokenizers and others that are written in Rust
)
# The variables that numerical libraries read at their import.
LIMITS = (
    *_GIVEN,
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
_KEPT = "HOLDFAST_KEPT_"

# From the kernel's include/linux/sched.h: the thread is in do_exit(), before it wakes its joiner.
_PF_EXITING = 0x4

# Names of threads that hold no lock that a forked child could wait for.
FORK_SAFE = ("jemalloc_bg_thd",)


def limit_imports(environ: MutableMapping[str, str]) -> None:
    """Keep libraries that are imported from now on from starting threads; save the old limits."""
    for name in LIMITS:
        if name in environ:
            environ[_KEPT + name] = environ[name]
        environ[name] = "1"


def release_limits(environ: MutableMapping[str, str], cpus: float) -> int:
    """Set a worker's limits: those of the user, else as many threads as it has CPUs.

    Returns the number of threads for libraries that are already loaded. A worker that is reused
    for another trial calls this again: the user's limits stay saved.
    """
    threads = max(1, int(cpus))
    for name in LIMITS:
        kept = environ.get(_KEPT + name)
        if kept is not None:
            environ[name] = kept
        elif name in _GIVEN:
            environ[name] = str(threads)
        else:
            environ.pop(name, None)
    wanted = environ["OMP_NUM_THREADS"].split(",")[0]
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else threads


@contextmanager
def one_thread(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Keep libraries that are imported inside this block from starting threads."""
    with changed(environ, dict.fromkeys(LIMITS, "1")):
        yield


@contextmanager
def changed(environ: MutableMapping[str, str], values: Mapping[str, str]) -> Iterator[None]:
    """Set variables inside this block."""
    before = {name: environ.get(name) for name in values}
    environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value


def widen_loaded_pools(threads: int) -> None:
    """Raise the number of threads in libraries that were imported with one thread."""
    if threads == 1:
        return
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    if "numpy" in sys.modules or "scipy" in sys.modules:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            return
        threadpool_limits(limits=threads)


def unsafe_to_fork() -> list[str]:
    """The names of native threads that may hold a lock during a fork.

    Libraries start them, so `threading.active_count()` does not count them. Empty on systems that
    do not list threads; there `fork_works` decides.
    """
    own = str(os.getpid())
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return []
    names = {_running(task) for task in tasks.iterdir() if task.name != own}
    return sorted(names.difference(FORK_SAFE, [""]))


def _running(task: Path) -> str:
    """A thread's name; "" if it has ended, or is ending and no longer holds a lock.

    A thread that was joined is still listed for a moment, because the kernel wakes the joiner
    first.
    """
    try:
        name, _, rest = (task / "stat").read_text().partition(" (")[2].rpartition(") ")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    flags = int(rest.split()[6])
    return "" if flags & _PF_EXITING else name


def fork_works() -> bool:
    """True if the platform allows forks. macOS aborts a forked process that uses its
    frameworks."""
    return sys.platform == "linux"


def reseed_libraries() -> None:
    """Reseed the global generators of NumPy and torch, which are equal in all forked children.

    Python reseeds its own `random` after a fork.
    """
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        _reseed_torch(torch)


def _reseed_torch(torch: ModuleType) -> None:
    """`torch.seed()` also notes a seed for devices that a build for CPUs cannot have, each with a
    stack trace: 1 to 2 ms of each worker's start."""
    known = getattr(torch, "accelerator", None)  # since torch 2.6
    if known is None or known.current_accelerator() is not None:
        torch.seed()
    else:
        torch.default_generator.seed()


def start_child(
    entry: str,
    first: Sequence[str],
    *,
    environ: Mapping[str, str],
    inherited_fds: Sequence[int],
    directory: str | None = None,
    last: Sequence[str] = (),
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `entry` in a session of its own. Returns its process and this end of a connection.

    Its arguments are `first`, the descriptor of its end, this process's pid, `inherited_fds` and
    `last`. It starts in `directory`, and imports from there first. Raises OSError.
    """
    import subprocess

    ours, theirs = socket.socketpair()
    with theirs:
        fds = (theirs.fileno(), *inherited_fds)
        arguments = [*first, *map(str, (theirs.fileno(), os.getpid(), *inherited_fds)), *last]
        try:
            process = subprocess.Popen(
                python_command(entry, arguments, directory),
                env=dict(environ),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def python_command(
    entry: str, arguments: Sequence[str], directory: str | None = None
) -> list[str]:
    """The command that runs `module:function(arguments...)` in a fresh interpreter like this one.

    The child gets this process's import path, made absolute because it may change its directory.
    `directory` comes first in it. No signal is blocked there, as the script or its launcher may
    have done.
    """
    import subprocess

    module, function = entry.split(":")
    path = [os.path.abspath(part or os.getcwd()) for part in sys.path]
    if directory is not None:
        path.insert(0, directory)
    code = (
        "import sys, _signal; _signal.pthread_sigmask(_signal.SIG_SETMASK, ()); "
        f"sys.path[:] = {path!r}; from {module} import {function} as main; main()"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code, *arguments]


def absolute_pythonpath(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable PYTHONPATH with absolute folders, for processes that run elsewhere; nothing if
    it is not set."""
    given = environ.get("PYTHONPATH")
    folders = map(os.path.abspath, (given or "").split(os.pathsep))
    return {"PYTHONPATH": os.pathsep.join(folders)} if given else {}
