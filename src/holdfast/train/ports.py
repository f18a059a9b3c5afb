"""Ports for libraries that open their own listening sockets, and network interfaces."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from holdfast.experiment.worker.train_loop import LOOPBACK, Rank
from holdfast.trial.errors import TuneError

_FIRST = 10_240
_TRIES = 1_000


@contextmanager
def place_of_each(rank: Rank) -> Iterator[list[str]]:
    """`address:port` of each rank, by rank. Each rank reserves a free port of its machine.

    It stays reserved until the training has ended without an error: after one the process ends.

    Raises TuneError if no port is free.
    """
    ((port, name),) = set_aside(1)
    yield rank.gather(f"{rank.address}:{port}")
    name.close()


def set_aside(count: int) -> list[tuple[int, socket.socket]]:
    """Free ports of this machine, each with a socket that reserves it: no other rank of any
    training gets the port until that socket is closed or this process ends.

    The kernel may choose a port again as soon as the socket that asked for it is closed, and the
    library cannot open a port that is open. So on Linux the ports lie below the kernel's range,
    and each is reserved by an abstract socket that only holdfast looks for. Elsewhere the kernel
    chooses, and another process could take the port before the library opens it.

    Raises TuneError if not enough ports are free.
    """
    reserved = _of_our_own(count) if _lowest_of_kernel() else _of_the_kernel(count)
    if len(reserved) < count:
        raise TuneError(f"there are no {count} free ports from {_FIRST} up to the kernel's own")
    return reserved


def _of_our_own(count: int) -> list[tuple[int, socket.socket]]:
    reserved: list[tuple[int, socket.socket]] = []
    # The user may seed the global generator, and then all ranks would try the same ports.
    drawn = random.SystemRandom()
    for _ in range(_TRIES):
        if len(reserved) == count:
            break
        port = drawn.randrange(_FIRST, _lowest_of_kernel())
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0holdfast-port-{port}")
            _try(port)
        except OSError:
            name.close()
        else:
            reserved.append((port, name))
    return reserved


def _try(port: int) -> None:
    """Raises OSError if the port is in use."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.bind(("", port))


def _of_the_kernel(count: int) -> list[tuple[int, socket.socket]]:
    probes = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    for probe in probes:
        probe.bind(("", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return list(zip(ports, probes, strict=True))


def _lowest_of_kernel() -> int:
    """The first port of the kernel's range; 0 if that is unknown or leaves too few below it."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return lowest if lowest > _FIRST + _TRIES else 0


def interface_of(address: str) -> str:
    """The network interface that has this address, for libraries that want its name.

    Raises TuneError if no interface of this machine has it.
    """
    import psutil

    if address == LOOPBACK and sys.platform == "linux":
        return "lo"
    for name, known in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in known):
            return name
    raise TuneError(
        f"the ranks of this trial should meet at {address}, and no network interface of this "
        f"machine ({socket.gethostname()}) has that address"
    )
