"""Facts about this machine: what an agent tells the controller about its node."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from holdfast.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """`resources` by name, as "CPU", "GPU" and others; `gpus` are their names."""

    resources: Mapping[str, float] = field(default_factory=dict)
    gpus: Sequence[str] = ()


def own_address() -> str:
    """Where other nodes can reach this one: the address at which ssh has reached it, else that on
    its default route, else loopback."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    if len(parts) == 4:
        return parts[2]
    # Connecting a datagram socket sends nothing.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def boot_id() -> str:
    """An id that changes when the machine restarts; "" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)


def disk_free_bytes(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def detect_total() -> dict[str, float]:
    """The amounts by the names of resources."""
    total: dict[str, float] = {"CPU": float(_cpus())}
    gpus = len(_visible_gpus())
    if gpus:
        total["GPU"] = float(gpus)
    return total


def _cpus() -> int:
    """The CPUs that this process may use: in a container or a job, fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = [limit for limit in (allowed, _cgroup_cpus(), _slurm_cpus()) if limit]
    return max(1, min(limits, default=1))


def _slurm_cpus() -> int | None:
    """What Slurm has given this job on this machine: not every cluster enforces it."""
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return int(given) if given.isdecimal() else None


def _cgroup_cpus() -> int | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(1, int(limit) // int(period))


def _visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() and name != "-1"]
    try:
        return [str(n) for n, _ in enumerate(os.listdir("/proc/driver/nvidia/gpus"))]
    except OSError:
        return []


def gpu_names_of(count: int) -> tuple[str, ...]:
    """The names of this many GPUs, as CUDA_VISIBLE_DEVICES has them."""
    known = _visible_gpus()
    return tuple(known[:count]) if len(known) >= count else tuple(str(n) for n in range(count))
