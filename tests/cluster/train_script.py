"""A user's script: a training on several workers, which notes where each of them is.

The options are one JSON object on the command line. Each batch is a step. Before it, each rank
marks its progress and waits at two gates: for its number of ranks, and for this step. After it, it
reports a checkpoint with a file of its own and one of a common name. With `torch`, the ranks form
a process group and train one model. With `steps_of_all`, the training ends after as many steps
with the largest number of ranks.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from holdfast import data, train
from holdfast.experiment.worker.session import current
from holdfast.train.torch import TorchTrainer
from tests.rig.script import mark, note, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "GLOO_SOCKET_IFNAME",
)


def loop(config: dict[str, Any]) -> None:
    at = train.get_context()
    rank, ranks, before = at.get_world_rank(), at.get_world_size(), saved_before()
    own = holdfast.put(np.full(1000, rank))
    note(
        attempt=at.get_attempt(),
        pid=os.getpid(),
        rank=rank,
        ranks=ranks,
        local=[at.get_local_rank(), at.get_local_world_size(), at.get_node_rank()],
        host=socket.gethostname(),
        node=current("the test").assignment.node.name,
        variables={name: os.environ.get(name) for name in VARIABLES},
        step=before["step"],
        files=before["files"],
        total=int(holdfast.get(config["weights"]).sum() + holdfast.get(own).sum()),
    )
    shard = train.get_dataset_shard("train")
    if "shard" in before:
        shard.load_state_dict(before["shard"])
    learn = torch_step(before) if config["torch"] else lambda batch: {}
    step = done = before["step"]
    while shard.epoch < config["epochs"]:
        epoch = shard.epoch
        for batch in shard.iter_batches(batch_size=config["batch"]):
            step += 1
            mark("at", ranks, rank, step)
            wait_at(f"of-{ranks}")
            wait_at(f"step-{step}")
            time.sleep(config["step_s"])  # a step of a real model takes longer
            row = {"step": step, "epoch": epoch, "rows": batch["id"].tolist(), **learn(batch)}
            save(rank, row, {**row, "shard": shard.state_dict()})
            if ranks == config["most"] and step - done == config["steps_of_all"]:
                return


def saved_before() -> dict[str, Any]:
    """What the checkpoint to resume from has, with the files of the ranks."""
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return {"step": 0, "files": {}}
    with checkpoint.as_directory() as folder:
        parts = sorted(Path(folder).glob("of-rank-*"))
        files = {part.name: int(part.read_text()) for part in parts}
        return {**json.loads(Path(folder, "common.json").read_text()), "files": files}


def save(rank: int, row: dict[str, Any], state: dict[str, Any]) -> None:
    """Report a checkpoint in which each rank has a file of its own and one that all have."""
    folder = Path(train.staging_directory())
    (folder / f"of-rank-{rank}").write_text(str(row["step"]))
    (folder / "common.json").write_text(json.dumps(state))
    train.report(row, checkpoint=train.Checkpoint.from_directory(folder))


def torch_step(before: dict[str, Any]) -> Any:
    """Trains a line with DDP; a step returns the weights, and a sum over the ranks."""
    import torch
    import torch.distributed as dist

    from holdfast.train.torch import prepare_model

    torch.manual_seed(dist.get_rank())  # DDP lets all begin with the weights of rank 0
    line = torch.nn.Linear(1, 1)
    if "model" in before:
        line.load_state_dict({n: torch.tensor(value) for n, value in before["model"].items()})
    model = prepare_model(line)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch: dict[str, Any]) -> dict[str, Any]:
        inputs = torch.tensor(batch["id"], dtype=torch.float32).reshape(-1, 1) / 16
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), 3 * inputs - 1).backward()
        optimizer.step()
        total = torch.tensor([dist.get_rank() + 1])
        dist.all_reduce(total)
        learned = {name: value.tolist() for name, value in line.state_dict().items()}
        return {"model": learned, "sum": total.item()}

    return step


def make_trainer() -> train.DataParallelTrainer:
    workers = OPTIONS["workers"]
    least, most = workers if isinstance(workers, list) else (workers, workers)
    given: dict[str, Any] = {
        "train_loop_config": {
            "epochs": OPTIONS.get("epochs", 2),
            "batch": OPTIONS["batch"],
            "step_s": OPTIONS.get("step_s", 0),
            "torch": OPTIONS.get("torch", False),
            "most": most,
            "steps_of_all": OPTIONS.get("steps_of_all"),
            "weights": holdfast.put(np.arange(100_000)),
        },
        "datasets": {"train": data.range(OPTIONS["rows"]).random_shuffle(seed=1)},
        "scaling_config": train.ScalingConfig(num_workers=(least, most)),
    }
    kind = TorchTrainer if OPTIONS.get("torch") else train.DataParallelTrainer
    if OPTIONS.get("restore"):
        base, mark_, query = OPTIONS["storage"].partition("?")
        return kind.restore(f"{base}/run{mark_}{query}", loop, **given)
    failure = train.FailureConfig(
        max_failures=OPTIONS.get("max_failures", 0), lost_worker_absence_s=3600
    )
    run = train.RunConfig(
        name="run",
        storage_path=OPTIONS["storage"],
        failure_config=failure,
        sync_config=train.SyncConfig(sync_period=0.2),
    )
    return kind(loop, run_config=run, keep_all_metrics=True, **given)


def main() -> None:
    result = make_trainer().fit()
    print("RESULTS", json.dumps([(result.metrics or {}).get("step")]))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
