"""Large models and a data set that all trials read without a copy.

    python examples/objects/large_models.py --storage /tmp/results

Each trial fits a few weights on top of one of two large fixed models. Models and data are put
once; in each trial their arrays are views of the same memory. Kill this script at any moment and
start it again with the same arguments: the objects are gone with the script, so it puts them
again, and the new references replace the old ones in `param_space`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from holdfast import tune

SAMPLES, FEATURES = 2_000, 200


class LargeModel:
    """A stand-in for a large pretrained model: inputs to features."""

    def __init__(self, model_id: int) -> None:
        self.model_id = model_id
        rng = np.random.default_rng(model_id)
        self.weights = rng.normal(size=(FEATURES, 20)) / FEATURES**0.5

    def features(self, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.tanh(inputs @ self.weights)


def make_data() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(SAMPLES, FEATURES))
    return {"inputs": inputs, "wanted": np.sin(inputs.sum(axis=1) / FEATURES**0.5)}


def train_fn(config: dict[str, Any]) -> None:
    # Read-only views of the script's objects: no trial has a copy.
    model = holdfast.get(config["model_ref"])
    data = holdfast.get(config["data_ref"])

    head, start = np.zeros(20), 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = json.loads(Path(folder, "head.json").read_text())
        head, start = np.array(saved["head"]), saved["epoch"] + 1

    features = model.features(data["inputs"])
    for epoch in range(start, config["epochs"] + 1):
        error = features @ head - data["wanted"]
        head -= config["lr"] * features.T @ error / SAMPLES
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "head.json").write_text(
                json.dumps({"epoch": epoch, "head": head.tolist()})
            )
            tune.report(
                {"loss": float(np.mean(error**2)), "epoch": epoch, "model_id": model.model_id},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


def param_space(epochs: int) -> dict[str, Any]:
    """The same keys each time, with references to the new objects."""
    return {
        "model_ref": tune.grid_search([holdfast.put(LargeModel(1)), holdfast.put(LargeModel(2))]),
        "data_ref": holdfast.put(make_data()),
        "lr": 0.5,
        "epochs": epochs,
    }


def make_tuner(given: argparse.Namespace) -> tune.Tuner:
    path = os.path.join(given.storage, given.name)
    if tune.Tuner.can_restore(path):
        print(f"Resuming {path} ...")
        return tune.Tuner.restore(
            path, train_fn, param_space=param_space(given.epochs), resume_errored=True
        )
    return tune.Tuner(
        train_fn,
        param_space=param_space(given.epochs),
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=given.storage, name=given.name),
    )


def main(arguments: Sequence[str] | None = None) -> tune.ResultGrid:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="restore_object_refs", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=10)
    results = make_tuner(parser.parse_args(arguments)).fit()
    for result in results:
        metrics = result.metrics or {}
        print(
            f"model {metrics['model_id']}: {metrics['epoch']} epochs, loss {metrics['loss']:.4f}"
        )
    return results


if __name__ == "__main__":
    main()
