"""Resume in the middle of an epoch, so that each row of it is seen once.

    python examples/data/resume.py --storage /tmp/results --name rows
    python examples/data/resume.py --storage /tmp/results --name rows --workers 3

The rows are in Parquet files, in row groups that are read on demand. Each worker gets a part of
them, in another order in each epoch, and every few batches it saves a checkpoint with the position
in the epoch. Kill this script at any moment and start it again with the same --name: it resumes
with the remaining rows of the epoch, also with another number of workers.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist

from holdfast import data, train
from holdfast.train import Checkpoint
from holdfast.train.torch import TorchTrainer, prepare_model

ROWS, FILES, EVERY = 480, 4, 3


def make_files(folder: str) -> str:
    """Points of a line, with some noise."""
    os.makedirs(folder, exist_ok=True)
    x = np.random.default_rng(0).random(ROWS, dtype=np.float32)
    table = pa.table({"id": np.arange(ROWS), "x": x, "y": 3 * x + 1})
    for file in range(FILES):
        part = table.slice(file * ROWS // FILES, ROWS // FILES)
        pq.write_table(part, os.path.join(folder, f"{file}.parquet"), row_group_size=40)
    return folder


def save(saved: dict[str, Any]) -> Checkpoint:
    directory = train.staging_directory()
    # The state is the same for all workers, and one file is enough.
    if train.get_context().get_world_rank() == 0:
        torch.save(saved, os.path.join(directory, "state.pt"))
    return Checkpoint.from_directory(directory)


def restore() -> dict[str, Any]:
    checkpoint = train.get_checkpoint()
    if not checkpoint:
        return {}
    with checkpoint.as_directory() as directory:
        found: dict[str, Any] = torch.load(os.path.join(directory, "state.pt"))
        return found


def train_func(config: dict[str, Any]) -> None:
    shard = train.get_dataset_shard("train")
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # How often each row was seen in this epoch: only for this demonstration.
    seen = torch.zeros(ROWS)
    epoch = 0
    if saved := restore():
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        shard.load_state_dict(saved["rows"])
        seen, epoch = saved["seen"], saved["epoch"]

    def report(**metrics: Any) -> None:
        now = {"rows": shard.state_dict(), "seen": seen, "epoch": epoch}
        weights = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        train.report(metrics, checkpoint=save({**weights, **now}))

    while epoch < config["num_epochs"]:
        batches = shard.iter_torch_batches(batch_size=config["batch_size"])
        for step, batch in enumerate(batches, 1):
            outputs = model(batch["x"].unsqueeze(1)).squeeze(1)
            loss = torch.nn.functional.mse_loss(outputs, batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = torch.zeros(ROWS).index_add_(0, batch["id"], torch.ones(len(batch["id"])))
            dist.all_reduce(now)
            seen += now
            if step % EVERY == 0:
                report(epoch=epoch, loss=loss.item(), rows_seen=int((seen > 0).sum()))
        epoch, once, most = epoch + 1, int((seen > 0).sum()), int(seen.max())
        seen = torch.zeros(ROWS)
        report(epoch=epoch - 1, loss=loss.item(), rows_seen=once, most_often=most)


def make_trainer(given: argparse.Namespace) -> TorchTrainer:
    path = os.path.join(given.storage, given.name)
    scaling_config = train.ScalingConfig(
        num_workers=given.workers, resources_per_worker={"CPU": 0.5}
    )
    if TorchTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        return TorchTrainer.restore(path, train_func, scaling_config=scaling_config)
    files = make_files(os.path.join(given.storage, f"{given.name}-files"))
    return TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": given.epochs, "batch_size": 20},
        scaling_config=scaling_config,
        run_config=train.RunConfig(
            storage_path=given.storage,
            name=given.name,
            failure_config=train.FailureConfig(max_failures=1),
        ),
        datasets={"train": data.read_parquet(files).random_shuffle(seed=0)},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="rows", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    result = make_trainer(parser.parse_args()).fit()
    print(f"Results: {result.path}")


if __name__ == "__main__":
    main()
