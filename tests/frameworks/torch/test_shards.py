"""A model in shards, saved by all ranks and loaded by another number of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)

from holdfast import train
from holdfast.train.torch import TorchTrainer, prepare_model

pytestmark = pytest.mark.process


def sharded(config: dict[str, Any]) -> None:
    torch.manual_seed(train.get_context().get_world_size())
    layers = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 2))
    model = prepare_model(layers, parallel_strategy="fsdp")
    state = get_model_state_dict(model)
    if begun := train.get_checkpoint():
        with begun.as_directory() as folder:
            dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(model, state)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    total = sum(float(part.double().sum()) for part in whole.values())
    staged = train.staging_directory()
    dcp.save(get_model_state_dict(model), checkpoint_id=staged)
    train.report({"total": total}, checkpoint=train.Checkpoint.from_directory(staged))
    if not begun:
        raise RuntimeError("that is all for now")


def of(ranks: int) -> train.ScalingConfig:
    return train.ScalingConfig(num_workers=ranks, resources_per_worker={"CPU": 0.1})


def test_a_model_in_shards_is_resumed_by_another_number_of_ranks(tmp_path: Path) -> None:
    run = train.RunConfig(storage_path=str(tmp_path), name="run", verbose=0)
    with pytest.raises(train.TrainingFailedError, match="that is all for now"):
        TorchTrainer(sharded, scaling_config=of(2), run_config=run).fit()
    (folder,) = tmp_path.glob("run/TorchTrainer_*/checkpoint_000000")
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata"} <= set(os.listdir(folder))
    first = json.loads((folder.parent / "result.json").read_text().splitlines()[0])
    result = TorchTrainer.restore(tmp_path / "run", scaling_config=of(3)).fit()
    assert result.metrics is not None
    assert result.metrics["total"] == pytest.approx(first["total"], rel=1e-6)
