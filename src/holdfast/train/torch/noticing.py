"""A notice of preemption that all ranks see in the same step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.session import running

# The default group, and the one to ask in it: of CPUs, so that it waits for no GPU.
_groups: list[Any] = []


def preemption_agreed() -> bool:
    """Whether any rank is being preempted (SIGTERM); the same answer in all ranks.

    Signals reach ranks at different times, but a checkpoint needs all ranks at the same step. Each
    rank must call this equally often. A call takes 0.2 ms if two ranks share a machine, 0.5 ms if
    other processes keep it busy. False outside a trial.
    """
    if running() is None:
        return False
    is_preempted = get_context().preemption_requested()
    if get_context().get_world_size() == 1 or not dist.is_initialized():
        return is_preempted
    if _groups[:1] != [dist.group.WORLD]:  # the script may have replaced it
        own = None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        _groups[:] = [dist.group.WORLD, own]
    flag = torch.tensor([int(is_preempted)], dtype=torch.int32)
    dist.all_reduce(flag, dist.ReduceOp.MAX, group=_groups[1])
    return bool(flag.item())
