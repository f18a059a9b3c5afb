"""What a worker and everything that it started have used: samples, and their sum.

The numbers come from other processes, on other nodes, too: they are checked here, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.runtime.errors import WireError

# More than any machine has: bytes, and seconds of CPU.
_MOST_BYTES = 1 << 60
_MOST_S = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What one worker has used since its start.

    `memory_bytes` is the largest amount of memory, `gpu_memory_bytes` that of the GPUs' memory,
    `gpu_utilisation` the mean share (0 to 1) of the time in which its GPUs computed; None if that
    is not known.
    """

    wall_s: float
    cpu_s: float
    memory_bytes: int
    gpu_memory_bytes: int | None = None
    gpu_utilisation: float | None = None

    def plain(self) -> list[Any]:
        return [
            self.wall_s,
            self.cpu_s,
            self.memory_bytes,
            self.gpu_memory_bytes,
            self.gpu_utilisation,
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the kernel has counted of a worker that has ended, and of children that it waited for.

    `largest_bytes` is the largest resident memory of one process. `shared_bytes` is the part that
    a forked worker shares with the warm parent. `exceeded`: the kernel killed a process of it,
    because all together used more memory than was requested.
    """

    wall_s: float
    cpu_s: float
    largest_bytes: int
    shared_bytes: int = 0
    exceeded: bool = False

    def plain(self) -> list[Any]:
        return [self.wall_s, self.cpu_s, self.largest_bytes, self.shared_bytes, self.exceeded]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a worker and its descendants.

    `memory_bytes` is what they use now; `main_bytes` is the worker's own resident memory now, and
    `main_peak_bytes` its largest so far.
    """

    cpu_s: float
    memory_bytes: int
    main_bytes: int
    main_peak_bytes: int
    gpu_memory_bytes: int | None = None
    gpu_utilisation: float | None = None

    def plain(self) -> list[Any]:
        return [
            self.cpu_s,
            self.memory_bytes,
            self.main_bytes,
            self.main_peak_bytes,
            self.gpu_memory_bytes,
            self.gpu_utilisation,
        ]


class Account:
    """Adds up the samples of one worker."""

    def __init__(self) -> None:
        self._cpu_s = 0.0
        self._peak = self._gpu_peak = 0
        # What the last sample has in addition to the worker's own resident memory; it may be
        # negative, because shared pages count only in part.
        self._beyond_main: int | None = None
        self._utilisations: list[float] = []
        self._has_gpu = False

    def add(self, sample: Sample) -> None:
        self._cpu_s = max(self._cpu_s, sample.cpu_s)
        self._beyond_main = sample.memory_bytes - sample.main_bytes
        self._peak_at(sample.main_peak_bytes)
        if sample.gpu_memory_bytes is not None:
            self._has_gpu = True
            self._gpu_peak = max(self._gpu_peak, sample.gpu_memory_bytes)
        if sample.gpu_utilisation is not None:
            self._utilisations.append(sample.gpu_utilisation)

    def so_far(self, wall_s: float) -> Used | None:
        """None before the first sample."""
        return None if self._beyond_main is None else self._used(wall_s)

    def at_exit(self, spent: Spent) -> Used:
        """The kernel's counts include the time since the last sample. They lack children that the
        worker has not waited for, which the samples have."""
        self._cpu_s = max(self._cpu_s, spent.cpu_s)
        if self._beyond_main is None:  # too short for a sample
            self._beyond_main = -spent.shared_bytes
        self._peak_at(spent.largest_bytes)
        return self._used(spent.wall_s)

    def _peak_at(self, main_peak: int) -> None:
        assert self._beyond_main is not None
        self._peak = max(self._peak, main_peak + self._beyond_main, 0)

    def _used(self, wall_s: float) -> Used:
        shares = self._utilisations
        return Used(
            wall_s=wall_s,
            cpu_s=self._cpu_s,
            memory_bytes=self._peak,
            gpu_memory_bytes=self._gpu_peak if self._has_gpu else None,
            gpu_utilisation=sum(shares) / len(shares) if shares else None,
        )


def read_used(plain: Any) -> Used:
    """Raises WireError."""
    wall_s, cpu_s, memory, gpu_memory, utilisation = _parts(plain, 5)
    return Used(
        wall_s=_seconds(wall_s),
        cpu_s=_seconds(cpu_s),
        memory_bytes=_bytes(memory),
        gpu_memory_bytes=None if gpu_memory is None else _bytes(gpu_memory),
        gpu_utilisation=None if utilisation is None else _share(utilisation),
    )


def read_spent(plain: Any) -> Spent:
    """Raises WireError."""
    wall_s, cpu_s, largest, shared, exceeded = _parts(plain, 5)
    if type(exceeded) is not bool:
        raise WireError(f"not a truth value: {shown(exceeded)}")
    return Spent(
        wall_s=_seconds(wall_s),
        cpu_s=_seconds(cpu_s),
        largest_bytes=_bytes(largest),
        shared_bytes=_bytes(shared),
        exceeded=exceeded,
    )


def read_sample(plain: Any) -> Sample:
    """Raises WireError."""
    cpu_s, memory, main, main_peak, gpu_memory, utilisation = _parts(plain, 6)
    return Sample(
        cpu_s=_seconds(cpu_s),
        memory_bytes=_bytes(memory),
        main_bytes=_bytes(main),
        main_peak_bytes=_bytes(main_peak),
        gpu_memory_bytes=None if gpu_memory is None else _bytes(gpu_memory),
        gpu_utilisation=None if utilisation is None else _share(utilisation),
    )


def _parts(plain: Any, count: int) -> Sequence[Any]:
    if type(plain) is not list or len(plain) != count:
        raise WireError(f"not what a worker has used: {shown(plain)}")
    return plain


def _seconds(value: Any) -> float:
    return _number(value, _MOST_S, "seconds")


def _share(value: Any) -> float:
    return _number(value, 1.0, "a share from 0 to 1")


def _number(value: Any, most: float, what: str) -> float:
    if type(value) not in (int, float) or math.isnan(value) or not 0 <= value <= most:
        raise WireError(f"not {what} that a worker can have used: {shown(value)}")
    return float(value)


def _bytes(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_BYTES:
        raise WireError(f"not a number of bytes that a worker can have used: {shown(value)}")
    return value
