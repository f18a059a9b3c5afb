"""A user's script: each trial saves with the mode that its config names, on nodes.

A trial with SYNC looks into the storage after each report. The first attempt of each trial fails
after its second checkpoint.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.train import DataParallelTrainer, ScalingConfig

STORAGE = Path(sys.argv[1])


def save(epoch: int, mode: str, name: str = "epoch") -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(str(epoch))
        checkpoint = tune.Checkpoint.from_directory(folder)
        tune.report({"epoch": epoch}, checkpoint=checkpoint, checkpoint_upload_mode=mode)


def train(config: dict[str, Any]) -> None:
    context, start = tune.get_context(), 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            start = int(Path(folder, "epoch").read_text())
    for epoch in range(start + 1, 4):
        save(epoch, config["mode"])
        if config["mode"] == "SYNC":
            (trial,) = STORAGE.glob(f"modes/*{context.get_trial_id()}*")
            assert (trial / f"checkpoint_{epoch - 1:06d}" / ".holdfast.json").exists()
        if epoch == 2 and context.get_attempt() == 1:
            raise RuntimeError("this attempt ends here")


def follow(config: dict[str, Any]) -> None:
    save(1, "NO_UPLOAD", f"weights-{tune.get_context().get_world_rank()}")


grid = tune.Tuner(
    train,
    param_space={"mode": tune.grid_search(["SYNC", "NO_UPLOAD"])},
    run_config=tune.RunConfig(
        name="modes",
        storage_path=str(STORAGE),
        failure_config=tune.FailureConfig(max_failures=1),
    ),
).fit()
found: dict[str, Any] = {}
for result in grid:
    assert result.metrics is not None
    assert result.config is not None
    try:
        checkpoint = result.get_best_checkpoint("epoch", "max")
        best = Path(checkpoint.path).name if checkpoint else ""
    except tune.TuneError as error:
        best = str(error)
    found[result.config["mode"]] = [result.metrics["iterations_since_restore"], best]
print(json.dumps(found), flush=True)
trainer = DataParallelTrainer(
    follow,
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
    run_config=tune.RunConfig(name="ranks", storage_path=str(STORAGE)),
)
try:
    trainer.fit()
except tune.TuneError as error:
    print(error, flush=True)
