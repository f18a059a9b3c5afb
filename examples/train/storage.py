"""The kinds of storage of a training, and the files in it.

    python examples/train/storage.py local --path /tmp/results
    python examples/train/storage.py bucket --path s3://bucket-name/sub-path
    python examples/train/storage.py minio --path s3://bucket-name --endpoint http://localhost:9000

Two workers train a small model together. After each epoch they report the loss with a checkpoint,
and write artifacts. Kill this script at any moment and start it again with the same arguments: it
resumes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model

# -- one function for each kind of storage --------------------------------------------------------


def bucket(path: str, name: str) -> train.RunConfig:
    """Cloud storage, by the URI of a bucket: s3://..., gs://... or abfs://...

    Credentials are found as other tools find them, for instance in AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY, or in ~/.aws.
    """
    return train.RunConfig(storage_path=path, name=name)


def shared(path: str, name: str) -> train.RunConfig:
    """A directory that all machines mount, such as /mnt/cluster_storage, or hdfs://..."""
    return train.RunConfig(storage_path=path, name=name)


def local(path: str, name: str) -> train.RunConfig:
    """A directory of this machine."""
    return train.RunConfig(storage_path=path, name=name)


def filesystem(path: str, name: str, endpoint: str) -> train.RunConfig:
    """Any `pyarrow.fs.FileSystem`; the path then has no s3:// before it: bucket-name/sub-path."""
    import pyarrow.fs

    fs = pyarrow.fs.S3FileSystem(
        endpoint_override=endpoint,
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    )
    return train.RunConfig(storage_filesystem=fs, storage_path=path, name=name)


def fsspec(path: str, name: str, endpoint: str) -> train.RunConfig:
    """Any filesystem of fsspec, in pyarrow's wrapper."""
    import pyarrow.fs
    import s3fs

    s3_fs = s3fs.S3FileSystem(
        key=os.environ["AWS_ACCESS_KEY_ID"],
        secret=os.environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=endpoint,
    )
    custom_fs = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(s3_fs))
    return train.RunConfig(storage_filesystem=custom_fs, storage_path=path, name=name)


def minio(path: str, name: str, endpoint: str) -> train.RunConfig:
    """MinIO and other S3 servers: the URI has all settings."""
    return train.RunConfig(storage_path=f"{path}?endpoint_override={endpoint}", name=name)


def automatic(name: str) -> train.RunConfig:
    """The directory in RAY_STORAGE, or else ~/ray_results."""
    return train.RunConfig(name=name)


def run_config(given: argparse.Namespace) -> train.RunConfig:
    match given.place:
        case "bucket":
            return bucket(given.path, given.name)
        case "shared":
            return shared(given.path, given.name)
        case "local":
            return local(given.path, given.name)
        case "filesystem":
            return filesystem(given.path, given.name, given.endpoint)
        case "fsspec":
            return fsspec(given.path, given.name, given.endpoint)
        case "minio":
            return minio(given.path, given.name, given.endpoint)
        case _:
            return automatic(given.name)


# -- the training ---------------------------------------------------------------------------------


def save_artifact(iteration: int, whose: str) -> None:
    """Write a file to the working directory, the trial's directory on this machine.

    All workers of a machine share it: best is to have only one of them write.
    """
    context = train.get_context()
    rank = context.get_world_rank()
    if whose == "rank-0" and rank != 0:
        return
    if whose == "local-rank-0" and context.get_local_rank() != 0:
        return  # with several machines, one writer on each
    Path(f"artifact-rank={rank}-iter={iteration}.txt").write_text(f"seen by rank {rank}\n")


def train_fn(config: dict[str, Any]) -> None:
    """The training function of each worker: fit y = 2a - b + 1 to noisy samples."""
    torch.manual_seed(0)
    inputs = torch.rand(256, 2)
    wanted = inputs @ torch.tensor([[2.0], [-1.0]]) + 1 + 0.01 * torch.randn(256, 1)
    loader = prepare_data_loader(
        DataLoader(TensorDataset(inputs, wanted), batch_size=32, shuffle=True)
    )
    model = torch.nn.Linear(2, 1)
    start = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            saved = torch.load(os.path.join(directory, "checkpoint.pt"))
        model.load_state_dict(saved["model"])
        start = saved["epoch"] + 1
    parallel = prepare_model(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)

    for i in range(start, config["epochs"]):
        loader.sampler.set_epoch(i)
        for batch, target in loader:
            loss = torch.nn.functional.mse_loss(parallel(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        metrics = {"loss": loss.item()}

        save_artifact(i, config["artifacts"])

        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            # Every worker saves the same model under the same name: one file is kept.
            # In checkpoints.py only one worker saves it.
            torch.save(
                {"epoch": i, "model": model.state_dict()},
                os.path.join(temp_checkpoint_dir, "checkpoint.pt"),
            )
            train.report(metrics, checkpoint=Checkpoint.from_directory(temp_checkpoint_dir))


def make_trainer(given: argparse.Namespace) -> train.DataParallelTrainer:
    config = run_config(given)
    if TorchTrainer.can_restore(config):
        print(f"Resuming {given.name} ...")
        return TorchTrainer.restore(config, train_fn)
    return TorchTrainer(
        train_fn,
        train_loop_config={"epochs": given.epochs, "artifacts": given.artifacts},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=replace(
            config,
            sync_config=train.SyncConfig(sync_artifacts=True),
            # A worker that dies is started again, and all resume from the newest checkpoint.
            failure_config=train.FailureConfig(max_failures=1),
        ),
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    places = ("bucket", "shared", "local", "filesystem", "fsspec", "minio", "automatic")
    parser.add_argument("place", choices=places)
    parser.add_argument("--path", help="the bucket, or the directory")
    parser.add_argument("--endpoint", help="URL of a server that speaks S3")
    parser.add_argument("--name", default="experiment_name", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cache", help="directory for what is on its way to the storage")
    whose = ("every-rank", "rank-0", "local-rank-0")
    parser.add_argument("--artifacts", choices=whose, default="every-rank")
    given = parser.parse_args(arguments)
    if given.place != "automatic" and not given.path:
        parser.error(f"{given.place} needs a --path")
    if given.place in ("filesystem", "fsspec", "minio") and not given.endpoint:
        parser.error(f"{given.place} needs an --endpoint")
    return given


def main(arguments: Sequence[str] | None = None) -> train.Result:
    given = parse(arguments)
    if given.cache:
        # Set it before the training starts, here or in the shell.
        os.environ["RAY_AIR_LOCAL_CACHE_DIR"] = given.cache

    result: train.Result = make_trainer(given).fit()
    last_checkpoint = result.checkpoint
    assert last_checkpoint

    # The same lines read the results from a directory or from a bucket.
    print(f"Result: {result.path} on {result.filesystem.type_name}")
    print(f"Checkpoint: {last_checkpoint.path} on {last_checkpoint.filesystem.type_name}")
    with last_checkpoint.as_directory() as directory:
        print(f"Files in it: {', '.join(sorted(os.listdir(directory)))}")
    return result


if __name__ == "__main__":
    main()
