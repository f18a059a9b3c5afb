"""Runs examples/train/storage.py once for each place that a test names, all in one process.

`every_place.py folder [{"arguments": [...], "environ": {...}, "light": true}, ...]`: a light run
has workers that do not import torch, and a loop that saves and reports without training. The
places make no other difference, and it takes a tenth of the time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast import train
from holdfast.train import Checkpoint

FOLDER, RUNS = sys.argv[1:]
sys.path.insert(0, FOLDER)
storage: Any = import_module("storage")
cloudpickle.register_pickle_by_value(storage)
save_artifact = storage.save_artifact


def light(config: dict[str, Any]) -> None:
    for i in range(config["epochs"]):
        save_artifact(i, config["artifacts"])
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "checkpoint.pt").write_text(str(i))
            train.report({"loss": 1 / (i + 1)}, checkpoint=Checkpoint.from_directory(folder))


def run(arguments: list[str], environ: dict[str, str], is_light: bool) -> dict[str, Any]:
    """The result of this run."""
    kept, before = (storage.train_fn, storage.TorchTrainer), dict(os.environ)
    os.environ.update(environ)
    if is_light:
        storage.train_fn, storage.TorchTrainer = light, train.DataParallelTrainer
    try:
        result = storage.main(arguments)
        checkpoint = result.checkpoint
        return {
            "path": result.path,
            "filesystem": result.filesystem.type_name,
            "checkpoint": checkpoint.path,
            "checkpoint_filesystem": checkpoint.filesystem.type_name,
            "losses": [row["loss"] for row in result.rows()],
        }
    finally:
        storage.train_fn, storage.TorchTrainer = kept
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    found = [run(one["arguments"], one["environ"], one["light"]) for one in json.loads(RUNS)]
    print("RESULTS", json.dumps(found))
