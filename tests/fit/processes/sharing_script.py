"""A user's script that runs short trials on two CPUs. The options are JSON on the command line."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import holdfast
from holdfast import tune
from tests.rig.script import mark, note, wait_at


def make_trainable(name: str, *, nested: bool) -> Any:
    def train(config: dict[str, Any]) -> None:
        began = time.monotonic()
        mark("began", name)
        wait_at("run")
        if int(tune.get_context().get_trial_id().rpartition("_")[2]) > 1:
            wait_at(f"{name}-later")
        if nested:
            run("inner", trials=1, storage=config["storage"])
        note(what="ran", name=name, began=began, ended=time.monotonic())
        tune.report({"loss": 1.0})

    return train


def run(
    name: str,
    *,
    trials: int,
    storage: str,
    nested: bool = False,
    reuse: bool = False,
    label: str | None = None,
) -> None:
    tuner = tune.Tuner(
        make_trainable(name, nested=nested),
        param_space={"storage": storage},
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=reuse),
        run_config=tune.RunConfig(
            name=None if nested or name == "inner" else label or name, storage_path=storage
        ),
    )
    assert tuner.fit().num_errors == 0


def main(options: dict[str, Any]) -> None:
    holdfast.init(num_cpus=2, share=options.get("share", True))
    given: dict[str, Any] = {key: options[key] for key in ("name", "trials", "storage")}
    behaviour: dict[str, Any] = {
        key: options[key] for key in ("nested", "reuse") if key in options
    }
    several = [
        threading.Thread(
            target=run, kwargs={**given, **behaviour, "label": f"{given['name']}-{n}"}
        )
        for n in range(options.get("threads", 0))
    ]
    if not several:
        run(**given, **behaviour)
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
