"""A TorchTrainer as in the PyTorch guide: DDP on two workers, a checkpoint each epoch."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ray.train.torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

STORAGE = os.path.abspath("results")


def train_func(config):
    torch.manual_seed(0)
    x = torch.rand(128, 1)
    loader = DataLoader(TensorDataset(x, 2 * x + 1), batch_size=config["batch_size"], shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    model = ray.train.torch.prepare_model(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])

    start = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "model.pt"), weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1

    for epoch in range(start, config["epochs"]):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        total = 0.0
        for features, labels in loader:
            loss = nn.functional.mse_loss(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        metrics = {"loss": total / len(loader), "epoch": epoch}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                state = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch,
                }
                torch.save(state, os.path.join(folder, "model.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            train.report(metrics, checkpoint=checkpoint)


if __name__ == "__main__":
    path = os.path.join(STORAGE, "torch")
    if TorchTrainer.can_restore(path):
        trainer = TorchTrainer.restore(path)
    else:
        trainer = TorchTrainer(
            train_func,
            train_loop_config={"lr": 0.1, "batch_size": 16, "epochs": 4},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
            run_config=RunConfig(
                name="torch",
                storage_path=STORAGE,
                checkpoint_config=CheckpointConfig(
                    num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
                ),
                failure_config=FailureConfig(max_failures=1),
            ),
        )
    result = trainer.fit()
    assert result.metrics["epoch"] == 3
    assert len(result.best_checkpoints) == 2
    with result.checkpoint.as_directory() as folder:
        state = torch.load(os.path.join(folder, "model.pt"), weights_only=True)
    print("DONE", state["epoch"])
