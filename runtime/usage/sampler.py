"""The process that samples what workers use, when the launcher asks for it.

launcher: ["sample", {worker: [pid, names of its GPUs]}]
here:     ["samples", {worker: values of a `Sample`}]

GPUs are read through NVIDIA's management library, which is a part of the driver, so no package can
install it. A binding would add nothing: five functions are read here, none is written.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from ctypes import Structure, byref, c_char, c_uint, c_ulonglong, c_void_p
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.runtime.process_control import give_way
from holdfast.runtime.transport import Channel
from holdfast.runtime.usage import used
from holdfast.runtime.usage.used import Sample, Stat
from holdfast.schema import to_row

LIBRARY = "libnvidia-ml.so.1"
_OK = 0
_NOT_KNOWN = (1 << 64) - 1
_UUID_BYTES = 96
# Processes per GPU; more are not read.
_MOST = 1024


class _MemoryInfo(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Rates(Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Process(Structure):
    _fields_ = (
        ("pid", c_uint),
        ("used", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class _ProcessRates(Structure):
    _fields_ = (
        ("pid", c_uint),
        ("at_us", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment: its memory in use, the share of the last moment in which it computed
    (None: not known), and both by the pid of each process."""

    index: int
    uuid: str
    used_bytes: int
    utilisation: float | None
    process_bytes: Mapping[int, int]
    process_utilisation: Mapping[int, float]


class Nvml:
    """The library, opened."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Raises OSError if there is no such library, or no driver that it can use."""
        self._lib = ctypes.CDLL(library)
        self._handles: list[tuple[c_void_p, str]] = []
        # When each GPU's rates of processes were last read.
        self._seen_us: dict[int, int] = {}
        count = c_uint()
        try:
            failed = self._lib.nvmlInit_v2() or self._lib.nvmlDeviceGetCount_v2(byref(count))
        except AttributeError as error:
            raise OSError(f"{library} is not NVML: {error}") from error
        if failed:
            raise OSError(f"{library}: error {failed}")
        for index in range(count.value):
            handle, uuid = c_void_p(), (c_char * _UUID_BYTES)()
            if self._lib.nvmlDeviceGetHandleByIndex_v2(index, byref(handle)) == _OK:
                self._call("nvmlDeviceGetUUID", handle, uuid, _UUID_BYTES)
                self._handles.append((handle, uuid.value.decode(errors="replace")))

    def gpus(self) -> list[Gpu]:
        """All GPUs now. What the driver does not say is missing."""
        return [
            self._gpu(index, handle, uuid) for index, (handle, uuid) in enumerate(self._handles)
        ]

    def _gpu(self, index: int, handle: c_void_p, uuid: str) -> Gpu:
        memory, rates = _MemoryInfo(), _Rates()
        self._call("nvmlDeviceGetMemoryInfo", handle, byref(memory))
        is_rated = self._call("nvmlDeviceGetUtilizationRates", handle, byref(rates))
        return Gpu(
            index=index,
            uuid=uuid,
            used_bytes=memory.used,
            utilisation=min(rates.gpu, 100) / 100 if is_rated else None,
            process_bytes=self._processes(handle),
            process_utilisation=self._process_rates(index, handle),
        )

    def _processes(self, handle: c_void_p) -> dict[int, int]:
        count, found = c_uint(_MOST), (_Process * _MOST)()
        if not self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), found):
            return {}
        return {one.pid: one.used for one in found[: count.value] if one.used != _NOT_KNOWN}

    def _process_rates(self, index: int, handle: c_void_p) -> dict[int, float]:
        """The mean of the driver's samples since the last call, by process."""
        count, found = c_uint(_MOST), (_ProcessRates * _MOST)()
        since = c_ulonglong(self._seen_us.get(index, 0))
        function = "nvmlDeviceGetProcessUtilization"
        if not self._call(function, handle, found, byref(count), since):
            return {}
        several: dict[int, list[float]] = {}
        for one in found[: count.value]:
            if one.at_us > since.value:
                several.setdefault(one.pid, []).append(min(one.sm, 100) / 100)
                self._seen_us[index] = max(self._seen_us.get(index, 0), one.at_us)
        return {pid: sum(rates) / len(rates) for pid, rates in several.items()}

    def _call(self, name: str, *arguments: Any) -> bool:
        """True if the call has succeeded; an old driver may lack the function."""
        function = getattr(self._lib, name, None)
        return function is not None and function(*arguments) == _OK


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The GPU memory of a worker in bytes, and the mean share of the time in which its GPUs
    computed; None if that is not known."""

    memory_bytes: int | None = None
    utilisation: float | None = None


def share_of(
    name: str,
    held: Mapping[str, Sequence[str]],
    pids: Collection[int],
    gpus: Sequence[Gpu],
    *,
    knows_pids: bool,
) -> GpuShare:
    """What the worker `name`, with the processes `pids`, uses.

    `held` are the names of the GPUs of all workers, as CUDA_VISIBLE_DEVICES has them. The driver
    says what each process uses, but with the pids of the machine. A container has others; then
    (`knows_pids` is false) a GPU counts as a whole for the one worker that has it, and not at all
    if several share it.
    """
    own = [gpu for gpu in gpus if any(pid in gpu.process_bytes for pid in pids)]
    if knows_pids and own:
        memory = sum(gpu.process_bytes.get(pid, 0) for gpu in own for pid in pids)
        rates = [
            min(1.0, sum(gpu.process_utilisation.get(pid, 0.0) for pid in pids)) for gpu in own
        ]
        return GpuShare(memory, sum(rates) / len(rates))
    if knows_pids or not held[name]:
        return GpuShare()
    mine = [gpu for gpu in gpus if _is_among(gpu, held[name])]
    others = [names for other, names in held.items() if other != name]
    is_shared = any(_is_among(gpu, names) for gpu in mine for names in others)
    if is_shared or len(mine) != len(held[name]):
        return GpuShare()
    known = [gpu.utilisation for gpu in mine if gpu.utilisation is not None]
    return GpuShare(
        sum(gpu.used_bytes for gpu in mine), sum(known) / len(known) if known else None
    )


def _is_among(gpu: Gpu, names: Sequence[str]) -> bool:
    """CUDA takes an index, or the beginning of a UUID."""
    return any(
        name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        for name in names
    )


_NICE = 10
# The namespace of the machine's own pids, PROC_PID_INIT_INO in the kernel's sources.
_MACHINES_PIDS = 0xEFFFFFFC


def serve(channel: Channel) -> None:
    """Answer until the connection ends."""
    give_way(_NICE)
    sampler = Sampler(_open_nvml(), knows_pids=has_machines_pids())
    with suppress(ConnectionError):  # the other end may not wait for an answer
        while (message := channel.receive()) is not None:
            match message:
                case ["sample", dict(workers)]:
                    seen = sampler.sample(workers)
                    channel.send(["samples", {name: to_row(one) for name, one in seen.items()}])
                case _:
                    raise ValueError(f"not an order to the sampler: {message!r:.100}")


class Sampler:
    """Samples workers; without NVML, not GPUs. `knows_pids`: NVML has the same pids."""

    def __init__(self, nvml: Nvml | None, *, knows_pids: bool) -> None:
        self._nvml = nvml
        self._knows_pids = knows_pids
        self._memory = used.Memory()

    def sample(self, workers: Mapping[str, Sequence[Any]]) -> dict[str, Sample]:
        """A sample of each worker that still runs."""
        table = used.table()
        trees = used.trees([pid for pid, _ in workers.values()], table)
        all_pids = {pid for tree in trees.values() for pid in tree}
        self._memory.keep_only(all_pids)
        gpus = self._nvml.gpus() if self._nvml is not None else []
        held = {name: names for name, (_, names) in workers.items()}
        return {
            name: self._sample(name, pid, trees[pid], table, held, gpus, len(all_pids))
            for name, (pid, _) in workers.items()
            if pid in trees
        }

    def _sample(
        self,
        name: str,
        main: int,
        tree: Sequence[int],
        table: Mapping[int, Stat],
        held: Mapping[str, Sequence[str]],
        gpus: Sequence[Gpu],
        count: int,
    ) -> Sample:
        share = share_of(name, held, tree, gpus, knows_pids=self._knows_pids)
        resident = table[main].resident_bytes
        return Sample(
            cpu_s=sum(table[pid].cpu_s for pid in tree),
            memory_bytes=sum(self._memory.of(pid, table[pid], count) for pid in tree),
            main_bytes=resident,
            main_peak_bytes=max(resident, used.peak_bytes(main)),
            gpu_memory_bytes=share.memory_bytes,
            gpu_utilisation=share.utilisation,
        )


def _open_nvml() -> Nvml | None:
    try:
        return Nvml()
    except OSError:  # a machine without NVIDIA's driver
        return None


def has_machines_pids() -> bool:
    """True if processes have the same pids here as for the driver: not in a container."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _MACHINES_PIDS
    except OSError:
        return False
