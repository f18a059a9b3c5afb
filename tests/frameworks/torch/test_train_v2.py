"""A torch training as Train V2's guides write it: validations, collectives, variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import train
from holdfast.train.collective import barrier, broadcast_from_rank_zero
from holdfast.train.torch import TorchCheckpoint, TorchTrainer, get_device, prepare_model

pytestmark = pytest.mark.process


def accuracy(checkpoint: train.Checkpoint, target: float) -> dict[str, float]:
    model = TorchCheckpoint(checkpoint.path).get_model(torch.nn.Linear(1, 1))
    with torch.no_grad():
        return {"distance": abs(float(model(torch.ones(1, 1))) - target)}


def fitted(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    target = broadcast_from_rank_zero(4.0 if rank == 0 else None)
    assert (os.environ["NODE_RANK"], os.environ["RANK"]) == ("0", str(rank))
    assert os.environ["ACCELERATE_TORCH_DEVICE"] == str(get_device()) == "cpu"
    torch.manual_seed(0)
    bare = torch.nn.Linear(1, 1)
    first, reported = 0, train.get_all_reported_checkpoints()
    if begun := train.get_checkpoint():
        TorchCheckpoint(begun.path).get_model(bare)
        first = len(reported)
    model = prepare_model(bare)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(first, 4):
        optimizer.zero_grad()
        ((model(torch.ones(8, 1)) - target) ** 2).mean().backward()
        optimizer.step()
        saved = TorchCheckpoint.from_state_dict(bare.state_dict()) if rank == 0 else None
        train.report({"epoch": epoch}, checkpoint=saved, validation=rank == 0)
        if epoch == 1 and not begun:
            raise RuntimeError("not this time")
    barrier()


def test_a_training_with_validations_resumes_where_it_failed(tmp_path: Path) -> None:
    config = train.ValidationConfig(accuracy, train.ValidationTaskConfig({"target": 4.0}))
    result = TorchTrainer(
        fitted,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        validation_config=config,
        run_config=train.RunConfig(
            name="run",
            storage_path=str(tmp_path),
            verbose=0,
            failure_config=train.FailureConfig(max_failures=1),
        ),
    ).fit()
    distances = [row["distance"] for _, row in result.best_checkpoints]
    assert len(distances) == 4
    assert distances == sorted(distances, reverse=True)
    assert [row["epoch"] for row in result.rows()] == [0, 1, 2, 3]
