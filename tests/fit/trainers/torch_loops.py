"""Training loops of test_torch.py, which imports them for its tests only: torch takes seconds."""

from __future__ import annotations

import copy
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from holdfast import train, tune
from holdfast.train.torch import (
    DealingSampler,
    TorchCheckpoint,
    accelerate,
    backward,
    enable_reproducibility,
    get_device,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from holdfast.train.torch.loop import preemption_agreed
from holdfast.trial.errors import InvalidConfig

SAMPLES = 48


def data() -> TensorDataset:
    inputs = torch.arange(SAMPLES, dtype=torch.float32).reshape(-1, 1) / SAMPLES
    return TensorDataset(inputs, 3 * inputs - 1)


def regression(config: dict[str, Any]) -> None:
    """Fits a line in three epochs; batches of 12 in all, whatever the number of ranks."""
    context = train.get_context()
    enable_reproducibility(1)
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    batch = 12 // context.get_world_size()
    loader = prepare_data_loader(DataLoader(data(), batch_size=batch, shuffle=True))
    begun = train.get_checkpoint()
    first = 0
    if begun is not None:
        with begun.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "model.pt"))
        model.load_state_dict(saved["model"])
        first = saved["epoch"] + 1
    for epoch in range(first, 3):
        loader.sampler.set_epoch(epoch)
        for inputs, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(inputs.to(get_device())), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if config.get("dies") and (context.get_attempt(), epoch, dist.get_rank()) == (1, 1, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoint = None
        if context.get_world_rank() == 0:
            saved = {"model": model.state_dict(), "epoch": epoch}
            torch.save(saved, os.path.join(staged := train.staging_directory(), "model.pt"))
            checkpoint = train.Checkpoint.from_directory(staged)
        bare = model.module if hasattr(model, "module") else model
        metrics = {"weight": bare.weight.item(), "bias": bare.bias.item(), "epoch": epoch}
        train.report(metrics, checkpoint=checkpoint)


def plain_regression() -> tuple[float, float]:
    """The same line without holdfast, except for the order of the samples."""
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    sampler = DealingSampler(data(), rank=0, ranks=1, shuffle=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, wanted in DataLoader(data(), batch_size=12, sampler=sampler):
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.weight.item(), model.bias.item()


def together(config: dict[str, Any]) -> None:
    """Mixed precision, and variables that libraries look for."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (str(rank), str(ranks))
    assert dist.get_backend() == "gloo"
    total = torch.tensor([rank + config["first"]])
    dist.all_reduce(total)
    accelerate(amp=True)
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    out = model(torch.ones(4, 1))
    assert out.dtype is torch.float32
    backward(out.sum())
    before = [part.clone() for part in model.parameters()]
    optimizer.step()
    moved = sum(
        float((a - b).abs().sum()) for a, b in zip(before, model.parameters(), strict=True)
    )
    train.report({"total": total.item(), "moved": moved, "port": os.environ["MASTER_PORT"]})


def seeing(config: dict[str, Any]) -> None:
    """Two epochs in batches of 2, saved after each; reports which samples each rank got."""
    began, context = time.monotonic(), train.get_context()
    numbers = TensorDataset(torch.arange(22))
    loader = prepare_data_loader(DataLoader(numbers, batch_size=2, shuffle=True, num_workers=1))
    first = 0
    if begun := train.get_checkpoint():
        with begun.as_directory() as folder:
            saved = json.loads(Path(folder, "loader").read_text())
        loader.load_state_dict(saved)
        first = saved["epoch"]
    steps = 0
    for epoch in range(first, 2):
        loader.sampler.set_epoch(epoch)
        for (batch,) in loader:
            steps += 1
            if (context.get_attempt(), epoch) == (2, 1):
                # Until the lost rank may have returned: its absence began before this attempt.
                time.sleep(max(0.0, began + config["absence_s"] + 0.1 - time.monotonic()))
            if (context.get_attempt(), context.get_world_rank(), steps) == (1, 1, 2):
                os.kill(os.getpid(), signal.SIGKILL)
            staged = train.staging_directory()
            Path(staged, "loader").write_text(json.dumps(loader.state_dict()))
            checkpoint = train.Checkpoint.from_directory(staged)
            metrics = {"epoch": epoch, "seen": batch.tolist()}
            is_first = context.get_world_rank() == 0
            train.report(metrics, checkpoint=checkpoint if is_first else None)


def loaders(config: dict[str, Any]) -> None:
    numbers = TensorDataset(torch.arange(4))
    shared = DataLoader(numbers, sampler=DistributedSampler(numbers, 1, 0))
    assert prepare_data_loader(shared) is shared
    plain = DataLoader(numbers)
    assert prepare_data_loader(plain, add_dist_sampler=False) is plain
    shared = DataLoader(numbers, batch_sampler=BatchSampler(shared.sampler, 2, drop_last=False))
    assert prepare_data_loader(shared) is shared
    batches = BatchSampler(torch.utils.data.RandomSampler(numbers), 3, drop_last=True)
    dealt = prepare_data_loader(DataLoader(numbers, batch_sampler=batches))
    assert (dealt.batch_size, dealt.drop_last, dealt.sampler.shuffle) == (3, True, True)
    assert [len(batch) for (batch,) in dealt] == [3]
    weighted = torch.utils.data.WeightedRandomSampler([1.0] * 4, 4)
    with pytest.raises(InvalidConfig, match=r"a custom sampler \(WeightedRandomSampler\)"):
        prepare_data_loader(DataLoader(numbers, sampler=weighted))
    twice = torch.utils.data.RandomSampler(numbers, replacement=True)
    with pytest.raises(InvalidConfig, match="a custom sampler"):
        prepare_data_loader(DataLoader(numbers, sampler=twice))
    with pytest.raises(InvalidConfig, match="must be 'ddp', 'fsdp' or None"):
        prepare_model(torch.nn.Linear(1, 1), parallel_strategy="deepspeed")
    train.report({"ok": 1})


def mixed(config: dict[str, Any]) -> None:
    accelerate(amp=True)
    model = prepare_model(torch.nn.Linear(1, 1))
    twin = copy.deepcopy(model)
    assert model(torch.ones(1, 1)).dtype is torch.float32
    with torch.no_grad():
        twin.weight.zero_()
    assert twin(torch.zeros(1, 1)).item() == pytest.approx(model.bias.item())
    checkpoint = TorchCheckpoint.from_model(model)
    train.report({"weight": model.weight.item()}, checkpoint=checkpoint)


class Broken:
    """Cannot load its last sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 7:
            raise LookupError("sample 7 is broken")
        return torch.tensor(index)


def with_loading_processes(config: dict[str, Any]) -> None:
    loader = DataLoader(
        data() if config["whole"] else Broken(),
        batch_size=2,
        num_workers=2,
        persistent_workers=config["persistent"],
    )
    for epoch in range(3):
        tune.report({"epoch": epoch, "batches": sum(1 for _ in loader)})


def leaving(config: dict[str, Any]) -> None:
    """Reports around the end of the process group, as the script has it."""
    train.report({"ranks": dist.get_world_size()})
    model = prepare_model(torch.nn.Linear(20, 1))
    for _ in range(20):
        model(torch.rand(32, 20)).sum().backward()
    dist.destroy_process_group()
    del model  # the last that uses the group, whose threads may still work
    if config["way"] == "replaces":
        dist.init_process_group("gloo")
    total = torch.ones(1)
    if dist.is_initialized():
        assert not preemption_agreed()
        dist.all_reduce(total)
    train.report({"total": total.item()})


def made_for_torchrun(config: dict[str, Any]) -> None:
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    launched, run = dist.is_torchelastic_launched(), os.environ["TORCHELASTIC_RUN_ID"]
    assert run == train.get_context().get_trial_id()
    if config["destroys"]:
        dist.destroy_process_group()
    train.report({"total": total.item(), "launched": launched})


def joining_itself(config: dict[str, Any]) -> None:
    dist.init_process_group("gloo")
