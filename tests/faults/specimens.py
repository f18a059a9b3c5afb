"""A user's experiment, made to be damaged: `specimens.py FOLDER KIND ENDING`.

It leaves one experiment named `run` in FOLDER/storage. Trial 2 sends the script the signal that
ENDING names (SIGINT: snapshots are written, SIGKILL: they are not), so that a restore has work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.train import DataParallelTrainer, ScalingConfig
from holdfast.tune.schedulers import PopulationBasedTraining
from tests.rig.trackers.fake_tracker import FakeTracker

EPOCHS = 4


class Counting(tune.Callback):
    """A callback with a state, so that callbacks.msgpack exists."""

    seen = 0

    def on_trial_result(self, *_: Any, **__: Any) -> None:
        self.seen += 1

    def get_state(self) -> dict[str, int]:
        return {"seen": self.seen}

    def set_state(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


def train(config: dict[str, Any]) -> None:
    begin = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            begin = int(Path(folder, "epoch").read_text()) + 1
    print(f"begins at {begin}", flush=True)
    for epoch in range(begin, EPOCHS + 1):
        if "SPECIMEN_RAN" in os.environ:
            with open(os.environ["SPECIMEN_RAN"], "a") as ran:
                ran.write(f"{config['index']} {epoch}\n")
        if config["index"] == 1 and epoch == 3:
            raise RuntimeError("this one fails")
        if config["index"] == 2 and epoch == 3 and "SPECIMEN_ENDING" in os.environ:
            script, ending = os.environ["SPECIMEN_ENDING"].split()
            os.kill(int(script), signal.Signals[ending])
            signal.pause()
        # Replaced as a whole: a write through a link that leads outside is then holdfast's.
        Path("artifact.new").write_text(f"{epoch}\n")
        os.replace("artifact.new", "artifact.txt")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            tune.report(
                {"loss": config["lr"] / epoch, "epoch": epoch},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


def loop(config: dict[str, Any]) -> None:
    """The same in the worker of a trainer."""
    train(config)


def trainable(kind: str) -> Any:
    """The trainable of a trainer is in trainer.pkl, where a restore finds it."""
    if kind != "trainer":
        return train
    return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=1))


def tuner(folder: Path, kind: str) -> tune.Tuner:
    scheduler = None
    if kind == "population":
        scheduler = PopulationBasedTraining(
            perturbation_interval=1, hyperparam_mutations={"lr": [0.1, 0.2, 0.4]}
        )
    space: dict[str, Any] = {
        "index": tune.grid_search([0, 1, 2, 3]),
        "lr": tune.uniform(0.1, 1),
    }
    callbacks: list[tune.Callback] = [Counting()]
    if kind == "tracked":
        callbacks.append(FakeTracker(folder / "told", refuses=(4,)))
    return tune.Tuner(
        trainable(kind),
        param_space={"train_loop_config": space} if kind == "trainer" else space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            scheduler=scheduler,
            max_concurrent_trials=1 if scheduler is None else None,
        ),
        run_config=tune.RunConfig(
            name="run",
            storage_path=str(folder / "storage"),
            callbacks=callbacks,
            sync_config=tune.SyncConfig(sync_artifacts=True, sync_period=1),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            verbose=0,
        ),
    )


if __name__ == "__main__":
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    if kind == "mirrored":
        os.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(folder / "cache")
    # A shell lets background processes ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(sys.argv) > 3:
        os.environ["SPECIMEN_ENDING"] = f"{os.getpid()} {sys.argv[3]}"
    with contextlib.suppress(KeyboardInterrupt):
        tuner(folder, kind).fit(resume="auto")
