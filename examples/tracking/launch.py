"""Starts the examples of this folder: two workers, and a restart after any failure."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from holdfast import train
from holdfast.train import FailureConfig, RunConfig, ScalingConfig
from holdfast.train.torch import TorchTrainer


def parser(description: str | None, *, name: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    made.add_argument("--name", default=name, help="resume it if it exists")
    made.add_argument("--epochs", type=int, default=4)
    return made


def fit(
    train_func: Callable[[dict[str, Any]], None], given: argparse.Namespace, **config: Any
) -> train.Result:
    """Train with two workers, or resume the training with this name."""
    path = os.path.join(given.storage, given.name)
    if TorchTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        trainer = TorchTrainer.restore(path, train_func)
    else:
        trainer = TorchTrainer(
            train_func,
            train_loop_config={"num_epochs": given.epochs, **config},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                storage_path=given.storage,
                name=given.name,
                failure_config=FailureConfig(max_failures=3),
            ),
        )
    result = trainer.fit()
    print(f"Results: {result.path}")
    return result


def mlflow_database(given: argparse.Namespace) -> str:
    """The tracking URI of a database file in the storage."""
    os.makedirs(given.storage, exist_ok=True)
    return f"sqlite:///{os.path.abspath(given.storage)}/mlflow.db"
