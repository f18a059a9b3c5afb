"""NVIDIA's management library, which comes with the driver, through ctypes.

It is a part of the driver, so no package can install it, and a binding would add nothing: five
functions are read here, none is written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import Structure, byref, c_char, c_uint, c_ulonglong, c_void_p
from typing import Any

from holdfast.dataclass import dataclass

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
        """Whether the call succeeded; an old driver may lack the function."""
        function = getattr(self._lib, name, None)
        return function is not None and function(*arguments) == _OK
