"""Facts about this machine: what an agent tells the controller about its node."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path

from holdfast.dataclass import dataclass

_LOOPBACK = "127.0.0.1"
# An address for documentation, which lies behind the default route.
_ANYWHERE = "192.0.2.1"
# How many CPUs this process may use, if whoever started it says so.
CPUS = "HOLDFAST_CPUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """`resources` by name, as "CPU", "GPU" and others; `gpus` are their names."""

    resources: Mapping[str, float] = field(default_factory=dict)
    gpus: Sequence[str] = ()


def node_ip() -> str:
    """This machine's address on its default route; loopback if there is none."""
    return _towards(_ANYWHERE) or _LOOPBACK


def own_address(environ: Mapping[str, str]) -> str:
    """Where other nodes can reach this one.

    That is the address at which ssh has reached it, else that of the interface towards the machine
    from which Slurm has started this process, or of the default route, which nodes of a cluster
    often lack; else loopback.
    """
    reached = environ.get("SSH_CONNECTION", "").split()
    # srun passes on the variables of the login node, where the user has come in by ssh.
    if len(reached) == 4 and _is_own(reached[2]):
        return reached[2]
    for target in (environ.get("SLURM_LAUNCH_NODE_IPADDR", ""), _ANYWHERE):
        if found := _towards(target):
            return found
    return _LOOPBACK


def _is_own(address: str) -> bool:
    """Whether an interface of this machine has this address, and other machines can reach it."""
    import psutil

    every = (one.address for several in psutil.net_if_addrs().values() for one in several)
    return address in every and not _is_loopback(address)


def _towards(target: str) -> str:
    """The address of this machine from which packets to that one would come; "" if there is
    none."""
    try:
        family = socket.AF_INET6 if ip_address(target).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))  # sends nothing, because it is a datagram socket
            found = str(probe.getsockname()[0])
    except (OSError, ValueError):
        return ""
    return "" if _is_loopback(found) else found


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # a name of an interface may follow the address
        return False


def boot_id() -> str:
    """An id that changes when the machine restarts; "" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def memory_bytes() -> int:
    """The memory that this process may use: in a container or a job, less than the machine has."""
    import psutil

    limits = [psutil.virtual_memory().total, *_cgroup_memory(), *_slurm_memory()]
    return int(min(limits))


def _slurm_memory() -> list[int]:
    given = os.environ.get("SLURM_MEM_PER_NODE", "")
    return [int(given) << 20] if given.isdecimal() and int(given) else []


def _cgroup_memory() -> list[int]:
    """The limits of the control groups that this process is in, of version 2 or 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        own = root / group.strip("/")
        while own.is_relative_to(root):
            found += _limit_in(own / name)
            own = own.parent
    return found


def _limit_in(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdecimal() and int(text) else []


def disk_free_bytes(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def detect_total() -> dict[str, float]:
    """The amounts by the names of resources."""
    total: dict[str, float] = {"CPU": float(_cpus()), "memory": float(memory_bytes())}
    gpus = len(_visible_gpus())
    if gpus:
        total["GPU"] = float(gpus)
    return total


def _cpus() -> int:
    """The CPUs that this process may use: in a container or a job, fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    several = (allowed, _cgroup_cpus(), _number("SLURM_CPUS_ON_NODE"), _number(CPUS))
    limits = [limit for limit in several if limit]
    return max(1, min(limits, default=1))


def _number(variable: str) -> int | None:
    """What Slurm, or the queue, has given this job on this machine: nothing may enforce it."""
    given = os.environ.get(variable, "")
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


def gpu_names_of(count: int, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of this many GPUs, as CUDA_VISIBLE_DEVICES has them. `known` are those that a node
    has found; None for this machine's."""
    known = _visible_gpus() if known is None else known
    return tuple(known[:count]) if len(known) >= count else tuple(str(n) for n in range(count))
