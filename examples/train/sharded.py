"""A model in shards: no worker has all of it, and each saves its own part.

    python examples/train/sharded.py --storage /tmp/results --name shards
    python examples/train/sharded.py --storage /tmp/results --name shards --workers 3

FullyShardedDataParallel gives each worker a part of the model. Each writes its part to a separate
file of one checkpoint, and all are uploaded in parallel: no process ever has the whole model. Kill
this script at any moment and start it again with the same --name: it resumes, also with another
number of workers.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def own_file(directory: str) -> str:
    """A name for this worker's file: of several files with one name only the last is kept."""
    return os.path.join(directory, f"generator-rank={train.get_context().get_world_rank()}.pt")


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> Checkpoint:
    """This worker's part of a checkpoint; the caller removes it after the report."""
    directory = train.staging_directory()
    weights, moments = get_state_dict(model, optimizer)
    # Its file names contain the rank.
    dcp.save(
        {"model": weights, "optimizer": moments, "epoch": epoch},
        checkpoint_id=directory,
    )
    # A worker's own state is a plain file: here the state of its dropout.
    torch.save(torch.get_rng_state(), own_file(directory))
    return Checkpoint.from_directory(directory)


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint, if there is one; returns the epoch to start with."""
    checkpoint = train.get_checkpoint()
    if not checkpoint:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "epoch": 0}
    with checkpoint.as_directory() as directory:
        # Each worker reads its part from the files that have it.
        dcp.load(state, checkpoint_id=directory)
        if os.path.exists(own_file(directory)):  # an additional worker has none
            torch.set_rng_state(torch.load(own_file(directory)))
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    return int(state["epoch"]) + 1


def train_func(config: dict[str, Any]) -> None:
    """Learn which of four numbers is the largest."""
    context = train.get_context()
    torch.manual_seed(0)
    numbers = torch.rand(480, 4)
    loader = prepare_data_loader(
        DataLoader(TensorDataset(numbers, numbers.argmax(dim=1)), batch_size=20, shuffle=True)
    )
    layers = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4)
    )
    model = prepare_model(layers, parallel_strategy="fsdp")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    # From here on each worker drops different units.
    torch.manual_seed(context.get_world_rank())

    for epoch in range(restore(model, optimizer), config["num_epochs"]):
        loader.sampler.set_epoch(epoch)
        for batch, largest in loader:
            loss = torch.nn.functional.cross_entropy(model(batch), largest)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        # Every worker reports its part, and the checkpoint has the files of all.
        checkpoint = save(model, optimizer, epoch)
        train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=checkpoint)


def make_trainer(given: argparse.Namespace) -> TorchTrainer:
    path = os.path.join(given.storage, given.name)
    scaling_config = train.ScalingConfig(
        num_workers=given.workers, resources_per_worker={"CPU": 0.5}
    )
    if TorchTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        return TorchTrainer.restore(path, train_func, scaling_config=scaling_config)
    return TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": given.epochs},
        scaling_config=scaling_config,
        run_config=train.RunConfig(
            storage_path=given.storage,
            name=given.name,
            failure_config=train.FailureConfig(max_failures=1),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="sharded", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()

    result = make_trainer(given).fit()
    assert result.checkpoint
    print(f"Results: {result.path}")
    with result.checkpoint.as_directory() as directory:
        print(f"Files of the last checkpoint: {', '.join(sorted(os.listdir(directory)))}")


if __name__ == "__main__":
    main()
