"""Train with Hugging Face Accelerate on two workers, and resume after a kill.

    python examples/transformers/states.py --storage /tmp/results --name line

Each worker saves its part of the state: the model, the optimizer, its random numbers. Kill this
script, or one of its workers, at any moment and start it again with the same --name.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from holdfast.train.torch import TorchTrainer


def train_func(config: dict[str, Any]) -> None:
    accelerator = Accelerator()  # finds the other workers by itself
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    inputs = torch.arange(24.0).reshape(-1, 1) / 24
    loader = DataLoader(TensorDataset(inputs, 3 * inputs - 1), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    first = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            accelerator.load_state(folder)
            first = torch.load(os.path.join(folder, "epoch.pt")) + 1
    for epoch in range(first, config["num_epochs"]):
        batches = 0
        for given, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(given), wanted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            batches += 1
        folder = train.staging_directory()
        accelerator.save_state(folder)
        if accelerator.is_main_process:
            torch.save(epoch, os.path.join(folder, "epoch.pt"))
        metrics = {
            "epoch": epoch,
            "loss": accelerator.reduce(loss.detach(), reduction="mean").item(),
            "weight": accelerator.unwrap_model(model).weight.item(),
            "batches": batches,
        }
        # In all workers: their files become one checkpoint.
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="accelerate", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()

    path = os.path.join(given.storage, given.name)
    if TorchTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        trainer = TorchTrainer.restore(path, train_func)
    else:
        trainer = TorchTrainer(
            train_func,
            train_loop_config={"num_epochs": given.epochs},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                storage_path=given.storage,
                name=given.name,
                failure_config=FailureConfig(max_failures=1),
            ),
        )
    result = trainer.fit()
    assert result.metrics
    print(f"{result.metrics['training_iteration']} epochs, loss {result.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
