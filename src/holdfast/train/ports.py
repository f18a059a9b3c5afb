"""Ports for libraries that open their listening sockets themselves, later, by number."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from pathlib import Path

from holdfast.trial.errors import TuneError

_FIRST = 10_240
_TRIES = 1_000


def set_aside(count: int) -> list[tuple[int, socket.socket]]:
    """So many free ports of this machine, each with what keeps it: no other rank of any training
    is given it until that is closed, or this process ends.

    A port that the kernel chose may be chosen again as soon as the socket that asked for it is
    closed, and one that is open cannot be opened by the library. So ports are taken from below
    those that the kernel gives away, and named by a socket that only we look for (Linux; elsewhere
    the kernel chooses, and its choice stands open to others for a moment).

    Raises TuneError where none is free.
    """
    reserved = _of_our_own(count) if _lowest_of_kernel() else _of_the_kernel(count)
    if len(reserved) < count:
        raise TuneError(f"there are no {count} free ports from {_FIRST} up to the kernel's own")
    return reserved


def _of_our_own(count: int) -> list[tuple[int, socket.socket]]:
    reserved: list[tuple[int, socket.socket]] = []
    # Not the generator that a user seeds, so that ranks do not all try the same ones.
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
    """Raises OSError for a port that somebody has."""
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
    """0 where it does not say, or gives all of them away."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return lowest if lowest > _FIRST + _TRIES else 0
