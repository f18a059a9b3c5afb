"""A user's script whose run the page shows: for tests in a browser, and for the docs' pictures.

A search with ASHA (unless `asha` is false) over a made-up loss. Trial 7 fails twice, for two
reasons, and finishes; rates above 0.3 diverge, which fails a trial for good. While a test holds
the gate `hold`, each trial waits before its next epoch, which takes `epoch_s` seconds; an attempt
of one trial waits at its own gate, `begun-TRIAL-ATTEMPT`. The options are one JSON object on the
command line.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator
from tests.rig.script import mark, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
EPOCHS: int = OPTIONS.get("epochs", 27)
EPOCH_S: float = OPTIONS.get("epoch_s", 0)
ASHA: bool = OPTIONS.get("asha", True)
SPACE = {
    "lr": tune.loguniform(1e-4, 1.0),
    "dropout": tune.uniform(0.0, 0.5),
    "batch": tune.choice([32, 64, 128]),
    "optimizer": tune.choice(["adam", "sgd"]),
}


class OutOfMemory(RuntimeError):
    pass


def loss_of(config: dict[str, Any], epoch: int) -> float:
    badness: float = (math.log10(config["lr"]) + 2) ** 2 / 5 + 3 * (config["dropout"] - 0.2) ** 2
    badness += 0.06 if config["optimizer"] == "sgd" else 0
    noise = math.sin(epoch * 12.9898 + config["lr"] * 7919 + config["batch"]) * 0.02
    return 0.2 + badness + 2 * math.exp(-epoch / (3 + 4 * badness)) + noise / (1 + epoch / 8)


def train(config: dict[str, Any]) -> None:
    context = tune.get_context()
    index = int(context.get_trial_id().rpartition("_")[2])
    attempt = context.get_attempt()
    start = 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            start = int(Path(folder, "epoch").read_text()) + 1
    mark("begun", index, attempt)
    wait_at(f"begun-{index}-{attempt}")
    for epoch in range(start, EPOCHS + 1):
        mark("at", index, epoch)
        wait_at("hold")
        threading.Event().wait(EPOCH_S)
        if index == 7 and attempt == 1 and epoch == 2:
            raise OutOfMemory("CUDA out of memory: tried to allocate 2.00 GiB, 1.21 GiB are free")
        if index == 7 and attempt == 2 and epoch == 3:
            raise ConnectionResetError("the data server closed the connection (shard 12)")
        if config["lr"] > 0.3 and epoch == 3:
            raise FloatingPointError(f"the loss is NaN: lr={config['lr']:.3g} is too large")
        loss = loss_of(config, epoch)
        print(f"epoch {epoch:2}  loss {loss:.4f}  lr {config['lr']:.2e}", flush=True)
        row = {"loss": loss, "accuracy": max(0.1, 1 - loss / 2.5), "epoch": epoch}
        if epoch % 3:
            tune.report(row)
            continue
        folder = tune.staging_directory()
        Path(folder, "epoch").write_text(str(epoch))
        Path(folder, "weights").write_bytes(bytes([epoch]) * 50_000)
        tune.report(row, checkpoint=tune.Checkpoint(folder))


def main() -> None:
    path = f"{OPTIONS['storage']}/{OPTIONS.get('name', 'run')}"
    if OPTIONS.get("restore"):
        tuner = tune.Tuner.restore(path, tune.with_resources(train, {"CPU": 0.5}))
    else:
        tuner = tune.Tuner(
            tune.with_resources(train, {"CPU": 0.5}),
            param_space=SPACE,
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=OPTIONS.get("samples", 24),
                scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=3) if ASHA else None,
                search_alg=BasicVariantGenerator(random_state=OPTIONS.get("seed", 3)),
            ),
            run_config=tune.RunConfig(
                storage_path=OPTIONS["storage"],
                name=OPTIONS.get("name", "run"),
                verbose=1,
                failure_config=tune.FailureConfig(max_failures=2),
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )
    tuner.fit()


if __name__ == "__main__":
    main()
