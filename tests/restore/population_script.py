"""A script as a user might write it: it starts a population or resumes it.

Each trial marks its reports, and waits at a gate where it is asked to end. An epoch takes
`epoch_s` seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import PopulationBasedTraining
from holdfast.tune.search import BasicVariantGenerator
from tests.rig.script import mark, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
# Not OPTIONS in the trainable: `tuner.pkl` would name the storage.
EPOCH_S = float(OPTIONS.get("epoch_s", 0))


def train(config: dict[str, Any]) -> None:
    """The loss is the distance to 1; each epoch multiplies it by `rate`."""
    far, first = 1.0, 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = json.loads(Path(folder, "state.json").read_text())
            far, first = saved["far"], saved["epoch"] + 1
    index = int(tune.get_context().get_trial_id()[-5:])
    for epoch in range(first, 6):
        mark("at", index, epoch)
        wait_at(f"at-{index}-{epoch}")
        threading.Event().wait(EPOCH_S)
        far *= config["rate"]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"far": far, "epoch": epoch}))
            try:
                row = {"loss": far, "rate": config["rate"]}
                tune.report(row, checkpoint=tune.Checkpoint.from_directory(folder))
            except SystemExit:
                mark("told to end", index, epoch)
                wait_at("end")
                raise


def main() -> None:
    storage, _, query = OPTIONS["storage"].partition("?")
    path = f"{storage}/run" + (f"?{query}" if query else "")
    continues = OPTIONS.get("go_on") and tune.Tuner.can_restore(path)
    if "restore" in OPTIONS or continues:
        tuner = tune.Tuner.restore(path, train)
    else:
        tuner = tune.Tuner(
            train,
            param_space={"rate": tune.uniform(0.1, 0.95)},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=2,
                # A grid would not say that there are but two: the first would make room for more.
                search_alg=BasicVariantGenerator(
                    points_to_evaluate=[{"rate": 0.9}, {"rate": 0.5}]
                ),
                scheduler=PopulationBasedTraining(
                    time_attr="training_iteration",
                    perturbation_interval=3,
                    hyperparam_mutations={"rate": tune.uniform(0.1, 0.95)},
                    quantile_fraction=0.5,
                ),
            ),
            run_config=tune.RunConfig(
                storage_path=OPTIONS["storage"],
                name="run",
                failure_config=tune.FailureConfig(max_failures=OPTIONS.get("max_failures", 0)),
                checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
                sync_config=tune.SyncConfig(sync_period=0.2),
            ),
        )
    mark("made")
    found = [
        {"config": result.config, "metrics": result.metrics, "error": str(result.error or "")}
        for result in tuner.fit(resume=OPTIONS.get("resume", "never"))
    ]
    print("RESULTS", json.dumps(found))


if __name__ == "__main__":
    main()
