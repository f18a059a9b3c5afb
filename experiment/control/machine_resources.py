"""The resources for trials: detected, or as given to `holdfast.init`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.runtime_env import located
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import validated
from holdfast.trial.runtime_env import RuntimeEnv, runtime_env_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResources:
    """Totals by resource name, the names of the GPUs, and the environment of every worker."""

    total: Mapping[str, float]
    gpu_names: tuple[str, ...] = ()
    environment: RuntimeEnv = field(default_factory=RuntimeEnv)
    debug: bool = False


_given: list[MachineResources] = []
_INIT = "holdfast.init(runtime_env=...)"


def init(
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
) -> None:
    """Set the resources of trials; without this call the machine's own CPUs and GPUs are detected.

    `resources` are custom ones by name. In `runtime_env={"env_vars": {...}, "working_dir": ...}`,
    the variables are set in every worker and never stored in a file; the directory is the workers'
    working directory and the first entry of their import path. `local_mode` runs one trial at a
    time in the calling process, so that `breakpoint()` works.

    Raises InvalidConfig for negative amounts, unknown keys, a missing directory, and a second call
    without `shutdown()` unless `ignore_reinit_error`.
    """
    if _given:
        if ignore_reinit_error:
            return
        raise InvalidConfig("holdfast.init() was called already: call holdfast.shutdown() first")
    total = detect_total()
    for name, amount in (("CPU", num_cpus), ("GPU", num_gpus)):
        if amount is not None:
            total[name] = amount
    total.update(resources or {})
    checked = validated(total, where="holdfast.init()")
    if checked.get("GPU", 0) % 1:
        raise InvalidConfig(
            f"holdfast.init(): num_gpus must be a whole number, not {checked['GPU']!r}; a trial "
            f"may ask for a part of one"
        )
    _given.append(
        MachineResources(
            total=checked,
            gpu_names=_gpu_names(int(checked.get("GPU", 0))),
            environment=located(runtime_env_of(runtime_env, where=_INIT), where=_INIT),
            debug=local_mode,
        )
    )


def shutdown() -> None:
    """Undo `init` and remove the objects of `put`. Experiments end their processes themselves."""
    from holdfast.experiment.worker.objects import free_all

    _given.clear()
    free_all()


def is_initialized() -> bool:
    """Whether `init` was called and `shutdown` was not called since."""
    return bool(_given)


def host_resources() -> MachineResources:
    """The resources given to `init`, or those detected."""
    if _given:
        return _given[0]
    total = detect_total()
    return MachineResources(total=total, gpu_names=_gpu_names(int(total.get("GPU", 0))))


def detect_total() -> dict[str, float]:
    total: dict[str, float] = {"CPU": float(_cpus())}
    gpus = len(_visible_gpus())
    if gpus:
        total["GPU"] = float(gpus)
    return total


def _cpus() -> int:
    """The CPUs that this process may use: in a container, fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cgroup_cpus()
    return max(1, min(allowed or 1, quota or allowed or 1))


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


def _gpu_names(count: int) -> tuple[str, ...]:
    known = _visible_gpus()
    return tuple(known[:count]) if len(known) >= count else tuple(str(n) for n in range(count))
