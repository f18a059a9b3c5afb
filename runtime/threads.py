"""Native threads: limits for numerical libraries, and whether a process may be forked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

# What the numerical libraries read when they are imported.
LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
# Of these, the ones that hold for who reads no other: a worker is given its own number there.
_GIVEN = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
_KEPT = "HOLDFAST_KEPT_"

# From the kernel's include/linux/sched.h: the thread is in do_exit(), before it wakes its joiner.
_PF_EXITING = 0x4

# Threads by the names they give themselves, that hold no lock a forked child could wait for.
FORK_SAFE = ("jemalloc_bg_thd",)


def limit_imports(environ: MutableMapping[str, str]) -> None:
    """Let libraries that are imported from now on start no threads; remember what was set."""
    for name in LIMITS:
        if name in environ:
            environ[_KEPT + name] = environ[name]
        environ[name] = "1"


def release_limits(environ: MutableMapping[str, str], cpus: float) -> int:
    """Give a worker its limits: what the user had set, else as many threads as it has CPUs.

    Returns the number of threads for the libraries that are loaded already. A worker that is
    used for another trial calls it again: what the user had set is remembered.
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
    """What is imported meanwhile starts no threads; afterwards the limits are as before."""
    before = {name: environ.get(name) for name in LIMITS}
    environ.update(dict.fromkeys(LIMITS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value


def widen_loaded_pools(threads: int) -> None:
    """Tell libraries that were imported with one thread how many they may use now."""
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
    """The names of native threads of this process that a fork might leave in the middle of a lock.

    `threading.active_count()` does not see these: they are started by libraries. Empty on systems
    that do not list them, where the platform's rule decides (see `fork_works`).
    """
    own = str(os.getpid())
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return []
    names = {_running(task) for task in tasks.iterdir() if task.name != own}
    return sorted(names.difference(FORK_SAFE, [""]))


def _running(task: Path) -> str:
    """A thread's name; "" for one that has ended, or is past holding any lock on its way out.

    A thread that was joined stays in the list for a moment: the kernel wakes the joiner first.
    """
    try:
        name, _, rest = (task / "stat").read_text().partition(" (")[2].rpartition(") ")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    flags = int(rest.split()[6])
    return "" if flags & _PF_EXITING else name


def fork_works() -> bool:
    """macOS aborts a forked process that touches its frameworks; there every worker is spawned."""
    return sys.platform == "linux"


def reseed_libraries() -> None:
    """Forked children begin with equal generators: give NumPy's and torch's global ones new seeds.

    Python reseeds its own `random` after a fork by itself.
    """
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()
