"""The torch devices of a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.experiment.worker.session import running

if TYPE_CHECKING:
    import torch


def get_devices() -> list[torch.device]:
    """The devices of this rank: its GPUs, or the CPU if it has none."""
    import torch

    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    own = range(visible)
    session = running()
    if session is not None and session.assignment.world_size > 1:
        share = session.assignment.bundles[1].get("GPU", 0)
        own = gpus_of(session.assignment.local_rank, share)
    found = [torch.device("cuda", index) for index in own if index < visible]
    return found or [torch.device("cpu")]


def gpus_of(rank: int, share: float) -> range:
    """The GPUs of the trial on this machine that the rank with this local number uses.

    Fractions of one GPU are given out in order.
    """
    first = int(rank * share)
    return range(first, max(int((rank + 1) * share), first + 1) if share else first)


def get_device() -> torch.device:
    """The device for this rank's model and data."""
    return get_devices()[0]
