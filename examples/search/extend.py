"""A search that is made longer, narrower and deeper, with everything kept that there was.

    python examples/search/extend.py --storage /tmp/experiments

It begins with a wide search of a few epochs; then it goes on twice with the same experiment: more
trials near the best one, and more epochs for all.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from holdfast import tune

EPOCHS = 5


def train(config: dict[str, Any]) -> None:
    """Gradient descent on a narrow valley; each epoch leaves a checkpoint."""
    state = {"epoch": 0, "x": -4.0, "y": 5.0}
    if found := tune.get_checkpoint():
        with found.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
    while state["epoch"] < 1000:
        for _ in range(10):
            state["x"] -= config["lr"] * 2 * state["x"]
            state["y"] -= config["lr"] * 20 * state["y"]
        state["epoch"] += 1
        loss = state["x"] ** 2 + 10 * state["y"] ** 2
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(state))
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"loss": loss, "epoch": state["epoch"]}, checkpoint=checkpoint)


def tell(what: str, results: tune.ResultGrid) -> float:
    best = results.get_best_result()
    config, row = best.config or {}, best.metrics or {}
    print(
        f"{what}: {len(results)} trials, best lr={config['lr']:.4f} "
        f"epoch={row['epoch']} loss={row['loss']:.3g}"
    )
    return float(config["lr"])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", required=True)
    options = parser.parse_args(arguments)
    run_config = tune.RunConfig(
        name="extend", storage_path=options.storage, stop={"epoch": EPOCHS}, verbose=0
    )
    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.loguniform(1e-5, 0.09)},
        tune_config=tune.TuneConfig(num_samples=6, metric="loss", mode="min"),
        run_config=run_config,
    )
    best = tell("wide", tuner.fit())

    narrower = tune.Tuner.restore(
        run_config,
        train,
        param_space={"lr": tune.uniform(best / 2, min(best * 2, 0.09))},
        num_samples=10,  # of which 6 exist
        extend=True,
    )
    tell("narrower", narrower.fit())

    deeper = tune.Tuner.restore(
        run_config,
        train,
        stop={"epoch": 3 * EPOCHS},
        resume_config=tune.ResumeConfig(finished="resume"),
        extend=True,
    )
    tell("deeper", deeper.fit())


if __name__ == "__main__":
    main()
