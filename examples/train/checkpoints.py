"""Save checkpoints, keep the best, resume from one, and use them after the training.

    python examples/train/checkpoints.py --storage /tmp/results --name spiral
    python examples/train/checkpoints.py --storage /tmp/results --name further \\
        --start-from /tmp/results/spiral/TorchTrainer_.../checkpoint_000007

Two workers learn to tell two spirals apart. Kill this script at any moment and start it again with
the same --name: it resumes, with the same numbers.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint, CheckpointConfig, RunConfig
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model

KEEP = {
    "all": CheckpointConfig(),
    # The two newest: enough to resume after a failure.
    "newest": CheckpointConfig(num_to_keep=2),
    # The two with the highest accuracy. The newest, from which a training resumes, stays, too.
    "best": CheckpointConfig(
        num_to_keep=2,
        checkpoint_score_attribute="mean_accuracy",
        checkpoint_score_order="max",
    ),
}


def spirals(count: int, seed: int) -> TensorDataset:
    """Points on each of two spiral arms, with the number of their arm."""
    generator = torch.Generator().manual_seed(seed)
    turn = 3 * torch.rand(count, generator=generator).sqrt()
    points, arms = [], []
    for arm in range(2):
        angle = turn + arm * math.pi
        noise = 0.15 * torch.randn(count, 2, generator=generator)
        points.append(torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) + noise)
        arms.append(torch.full((count,), arm))
    return TensorDataset(torch.cat(points), torch.cat(arms))


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))


def accuracy(model: torch.nn.Module) -> float:
    """The share of points, not seen in training, that are classified correctly."""
    points, arms = spirals(200, seed=1).tensors
    with torch.no_grad():
        right: float = (model(points).argmax(dim=1) == arms).float().mean().item()
    return right


# -- the training ---------------------------------------------------------------------------------


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """The model within DistributedDataParallel, whose names have no "module." before them.

    With one worker there is nothing around it.
    """
    return model.module if isinstance(model, DistributedDataParallel) else model


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int, path: str) -> None:
    """Save everything that the next epoch depends on."""
    torch.save(bare(model).state_dict(), os.path.join(path, "model.pt"))
    torch.save(
        {"optimizer": optimizer.state_dict(), "epoch": epoch}, os.path.join(path, "extra.pt")
    )


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load what `save` wrote, if there is a checkpoint; returns the epoch to start with.

    There is one after a failure, after `TorchTrainer.restore`, and where `resume_from_checkpoint`
    was given.
    """
    checkpoint = train.get_checkpoint()
    if not checkpoint:
        return 0
    with checkpoint.as_directory() as checkpoint_dir:
        bare(model).load_state_dict(torch.load(os.path.join(checkpoint_dir, "model.pt")))
        extra = torch.load(os.path.join(checkpoint_dir, "extra.pt"))
    optimizer.load_state_dict(extra["optimizer"])
    return int(extra["epoch"]) + 1


def train_func(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    loader = prepare_data_loader(DataLoader(spirals(200, seed=0), batch_size=25, shuffle=True))
    model = prepare_model(make_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for epoch in range(restore(model, optimizer), config["num_epochs"]):
        loader.sampler.set_epoch(epoch)
        for points, arms in loader:
            loss = torch.nn.functional.cross_entropy(model(points), arms)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        metrics = {"epoch": epoch, "loss": loss.item(), "mean_accuracy": accuracy(bare(model))}
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            checkpoint = None
            # The model is the same in all workers: one saves it, all report.
            if train.get_context().get_world_rank() == 0:
                save(model, optimizer, epoch, temp_checkpoint_dir)
                checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)
            train.report(metrics, checkpoint=checkpoint)


def make_trainer(given: argparse.Namespace) -> TorchTrainer:
    path = os.path.join(given.storage, given.name)
    if TorchTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        return TorchTrainer.restore(path, train_func)
    return TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": given.epochs},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=given.storage,
            name=given.name,
            checkpoint_config=KEEP[given.keep],
            failure_config=train.FailureConfig(max_failures=1),
        ),
        resume_from_checkpoint=Checkpoint(given.start_from) if given.start_from else None,
    )


# -- after the training ---------------------------------------------------------------------------


def inspect(result: train.Result, export: str | None) -> None:
    """Show the checkpoints of a result, and the best one."""
    for checkpoint, row in result.best_checkpoints:
        name = os.path.basename(checkpoint.path)
        print(f"{name}: epoch {row['epoch']}, mean_accuracy {row['mean_accuracy']:.4f}")

    best = result.get_best_checkpoint("mean_accuracy", "max")
    assert best
    # To read: a local checkpoint in place, one in a bucket as a temporary download.
    with best.as_directory() as checkpoint_dir:
        model = make_model()
        model.load_state_dict(torch.load(os.path.join(checkpoint_dir, "model.pt")))
    print(f"The best again: mean_accuracy {accuracy(model):.4f}")

    # To keep: your own copy.
    if export:
        print(f"Exported to {best.to_directory(export)}: {', '.join(sorted(os.listdir(export)))}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="checkpoints", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--keep", choices=list(KEEP), default="best")
    parser.add_argument("--start-from", help="a checkpoint of another training to begin with")
    parser.add_argument("--export", help="a directory to copy the best checkpoint to")
    given = parser.parse_args()

    result = make_trainer(given).fit()
    print(f"Results: {result.path}")
    inspect(result, given.export)


if __name__ == "__main__":
    main()
