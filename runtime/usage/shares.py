"""Which part of the GPUs each worker uses. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.runtime.usage.nvml import Gpu


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
