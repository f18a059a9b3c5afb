"""The process that looks at workers when the launcher asks for it.

launcher: ["look", {worker: [pid, names of its GPUs]}]
here:     ["seen", {worker: values of a `Sample`}]
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.runtime.priority import give_way
from holdfast.runtime.transport import Channel
from holdfast.runtime.usage import processes
from holdfast.runtime.usage.nvml import Gpu, Nvml
from holdfast.runtime.usage.processes import Stat
from holdfast.runtime.usage.shares import share_of
from holdfast.runtime.usage.used import Sample

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
                case ["look", dict(workers)]:
                    seen = sampler.look(workers)
                    channel.send(["seen", {name: one.plain() for name, one in seen.items()}])
                case _:
                    raise ValueError(f"not an order to the sampler: {message!r:.100}")


class Sampler:
    """Looks at workers; without NVML, not at GPUs. `knows_pids`: NVML has the same pids."""

    def __init__(self, nvml: Nvml | None, *, knows_pids: bool) -> None:
        self._nvml = nvml
        self._knows_pids = knows_pids
        self._memory = processes.Memory()

    def look(self, workers: Mapping[str, Sequence[Any]]) -> dict[str, Sample]:
        """A sample of each worker that still runs."""
        table = processes.table()
        trees = processes.trees([pid for pid, _ in workers.values()], table)
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
            main_peak_bytes=max(resident, processes.peak_bytes(main)),
            gpu_memory_bytes=share.memory_bytes,
            gpu_utilisation=share.utilisation,
        )


def _open_nvml() -> Nvml | None:
    try:
        return Nvml()
    except OSError:  # a machine without NVIDIA's driver
        return None


def has_machines_pids() -> bool:
    """Whether processes have the same pids here as for the driver: not in a container."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _MACHINES_PIDS
    except OSError:
        return False
