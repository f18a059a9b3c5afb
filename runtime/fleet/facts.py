"""A fleet's settings, its owner's interface, and the facts about a node.

An agent finds out what its machine has, and tells the controller.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.dataclass import dataclass
from holdfast.runtime.fleet.delivery import SharedFile
from holdfast.runtime.wire import Message

# The cause of a node's end that its owner ordered.
GIVEN_BACK = "given back"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node that has joined. `address` is its own name for its end of the connection, at which
    other nodes can reach it. `resources` has "CPU", "GPU", custom ones and "memory" in bytes.
    `pid` is the agent's, `kind` the name of its kind in the engine's offer."""

    name: str
    hostname: str
    address: str
    resources: Mapping[str, float]
    gpus: Sequence[str]
    python: str
    pid: int
    disk_free_bytes: int
    kind: str = ""


class LastMessage(NamedTuple):
    """A node, the seconds since its last message, and the free bytes of its disk."""

    node: str
    ago_s: float
    disk_free_bytes: int


class FleetHost(Protocol):
    """The owner of a fleet. Called on the loop; `node_joined` also before `open` returns."""

    def node_joined(self, node: NodeFacts) -> None:
        """A node can run workers."""

    def node_leaving(self, name: str, seconds: float, why: str) -> None:
        """The node will be taken away in so many seconds. Called at most once per node."""

    def node_left(self, name: str, cause: str) -> None:
        """A node is lost, or was given back. The exits of its workers follow."""

    def no_node_left(self, why: str) -> None:
        """There is no node any more, and the engine will supply none."""

    def on_answer(self, name: str, message: Message) -> None:
        """An answer of the node's service. Raises ValueError if none sends this."""

    def waits(self, text: str) -> None:
        """What the engine waits for; "" for nothing."""

    def tell(self, text: str) -> None:
        """A warning for the user."""


PROTOCOL = 2
# In the environment of workers: the scratch folder of their agent.
NODE_DIR = "HOLDFAST_NODE_DIR"
_LONGEST_NAME = 63
# The largest frame of an agent before the controller knows who it is.
LARGEST_BEFORE_HELLO = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """Times are in seconds.

    The controller's port is at `address`, a name or number of this machine that the nodes can
    reach. An agent sends a heartbeat every `heartbeat_s`, which the controller answers. An agent
    that has received nothing for `lease_s` ends its workers and itself; the controller gives it up
    `margin_s` later, so that no trial runs twice. Both together are just below two heartbeats. An
    agent has
    `certificate_s` to show its certificate and `hello_s` to introduce itself, over a pipe
    `pipe_hello_s` (a login takes longer), and at most `most_pending` may be doing so. After the
    end of a connection, the engine has `cause_s` to say why. An agent has `grace_s` to end in, and
    the controller waits `late_s` longer for it. A node whose disk has less than `least_free_bytes`
    is refused.
    """

    address: str = "127.0.0.1"
    heartbeat_s: float = 5.0
    lease_s: float = 8.9
    margin_s: float = 1.0
    certificate_s: float = 5.0
    hello_s: float = 10.0
    pipe_hello_s: float = 60.0
    most_pending: int = 128
    cause_s: float = 1.0
    grace_s: float = 10.0
    late_s: float = 3.0
    least_free_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every agent loads before it starts workers, in addition to entry and payload.

    `env_vars` are set in the workers. `files` are sent first; if one is a directory, it takes the
    place of `directory`. Workers import from `import_folders` too, if the node has
    them, and start in `directory`, if it is given. `learns` and `workers_move` are those of
    `LocalLauncher`. A process that is stopped is continued after `stopped_deadline_s`. `service`
    is opaque: unless it is empty, the agent's `NodeService` loads it. `ray_names`: `import ray`
    means holdfast in the workers (`holdfast.compat.ray_path`).
    """

    env_vars: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[SharedFile] = ()
    import_folders: Sequence[str] = ()
    directory: str | None = None
    learns: bool = True
    workers_move: bool = False
    stopped_deadline_s: float = 0.0
    service: bytes = b""
    ray_names: bool = False


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, or the first of `wanted-2`, `wanted-3`, ... that is not taken."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def host_name(hostname: str) -> str:
    """The host's short name, as the plain name of a node."""
    short = re.sub(r"[^A-Za-z0-9_-]", "-", hostname.partition(".")[0])[:_LONGEST_NAME]
    return short.strip("-") or "node"


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
    """True if an interface of this machine has this address, and other machines can reach it."""
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


def memory_bytes() -> int:
    """The memory that this process may use: in a container or a job, less than the machine has."""
    return min([_total_memory(), *_cgroup_memory(), *_slurm_memory()])


def _total_memory() -> int:
    """As psutil, whose import would take 5 ms of each start."""
    if sys.platform == "linux":  # where a container may show its own
        with open("/proc/meminfo") as file:
            return int(file.readline().split()[1]) << 10
    else:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
