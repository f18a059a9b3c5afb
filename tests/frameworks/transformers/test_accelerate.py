"""Accelerate in a loop of TorchTrainer: it finds the ranks by what the environment says."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.huggingface.transformers import prepare_trainer
from holdfast.train.torch import TorchTrainer

pytestmark = pytest.mark.process


def fit(tmp_path: Path, loop: Any) -> train.Result:
    return TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "results"),
            name="run",
            verbose=0,
            failure_config=train.FailureConfig(max_failures=1),
        ),
    ).fit()


def loop(config: dict[str, Any]) -> None:
    """Each rank saves its part of the state; rank 1 is killed in the third of four epochs."""
    accelerator = Accelerator()
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    inputs = torch.arange(24.0).reshape(-1, 1) / 24
    loader = DataLoader(TensorDataset(inputs, 3 * inputs - 1), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    context, first = train.get_context(), 0
    if begun := train.get_checkpoint():
        with begun.as_directory() as folder:
            accelerator.load_state(folder)
            first = torch.load(os.path.join(folder, "epoch.pt")) + 1
    for epoch in range(first, 4):
        batches = 0
        for given, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(given), wanted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            batches += 1
        if (context.get_attempt(), epoch, context.get_world_rank()) == (1, 2, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        staged = train.staging_directory()
        accelerator.save_state(staged)
        if accelerator.is_main_process:
            torch.save(epoch, os.path.join(staged, "epoch.pt"))
        row = {
            "epoch": epoch,
            "batches": batches,
            "processes": accelerator.num_processes,
            "weight": accelerator.unwrap_model(model).weight.item(),
        }
        train.report(row, checkpoint=train.Checkpoint.from_directory(staged))


def line() -> list[float]:
    """The weight after each epoch, of one process with the batches of both ranks at once."""
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    inputs = torch.arange(24.0).reshape(-1, 1) / 24
    weights = []
    for _ in range(4):
        for given in inputs.split(8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(given), 3 * given - 1).backward()
            optimizer.step()
        weights.append(model.weight.item())
    return weights


@pytest.mark.smoke
def test_an_accelerator_trains_with_all_ranks_and_goes_on_after_the_death_of_one(
    tmp_path: Path,
) -> None:
    result = fit(tmp_path, loop)
    told = [(row["epoch"], row["batches"], row["processes"]) for row in result.rows()]
    assert told == [(epoch, 3, 2) for epoch in range(4)]
    assert [row["weight"] for row in result.rows()] == pytest.approx(line(), rel=1e-5)
    assert result.checkpoint is not None
    names = {path.name for path in Path(result.checkpoint.path).iterdir()}
    assert {"random_states_0.pkl", "random_states_1.pkl", "model.safetensors"} <= names


def alone(config: dict[str, Any]) -> None:
    """What a script may have set that was written for one process."""
    os.environ["ACCELERATE_USE_CPU"] = "false"
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    size = {"n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=4, bos_token_id=0, eos_token_id=0, **size))
    arguments = TrainingArguments(output_dir="saved", report_to="none")
    prepare_trainer(Trainer(model=model, args=arguments))


def test_a_trainer_that_would_train_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        train.TrainingFailedError, match=r"with 1 processes, its trial has 2 ranks"
    ):
        fit(tmp_path, alone)
