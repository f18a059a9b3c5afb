"""The machine and the versions that the figures belong to."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("holdfast", "msgpack", "uvloop", "pyarrow", "numpy", "torch", "tensorboardX")
_NEW_FILES = 1000


def facts(folder: Path) -> dict[str, Any]:
    """The facts as plain data, at the start of the measurement; `load` is that of the minute
    before.

    `new_file_us` is how long it takes to create a file on the disk of `folder`, in microseconds. A
    disk from which many files were just deleted may need ten times as long, and so do trials.
    """
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "new_file_us": _new_file_us(folder),
    }


def versions() -> dict[str, str | None]:
    """The versions of packages; None for one that is not installed."""
    return {name: _version(name) for name in _PACKAGES}


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _new_file_us(folder: Path) -> float:
    target = folder / "new-files"
    target.mkdir()
    began_s = time.perf_counter()
    for number in range(_NEW_FILES):
        (target / str(number)).touch()
    return 1e6 * (time.perf_counter() - began_s) / _NEW_FILES


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
