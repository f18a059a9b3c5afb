"""Extend a search by starting its script again: more trials, more epochs, a narrower space.

    python examples/extending/extend.py --storage /tmp/results --samples 6 --epochs 5
    python examples/extending/extend.py --storage /tmp/results --samples 10 --epochs 15 --near 0.08

The first start is a wide search of a few epochs. The second one extends the same experiment and
keeps all results: four more trials, near a good one, and more epochs for all. After a kill, start
the script again with the same line, and it resumes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from holdfast import tune


def train(config: dict[str, Any]) -> None:
    """Gradient descent in a narrow valley, with a checkpoint in each epoch."""
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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", required=True)
    parser.add_argument("--name", default="extend", help="resume it if it exists")
    parser.add_argument("--samples", type=int, default=6, help="trials in all")
    parser.add_argument("--epochs", type=int, default=5, help="of each trial")
    parser.add_argument("--near", type=float, help="draw learning rates around this one")
    given = parser.parse_args(arguments)

    lr = tune.loguniform(1e-5, 0.09)
    if given.near:
        lr = tune.uniform(given.near / 2, min(given.near * 2, 0.09))
    tuner = tune.Tuner(
        train,
        param_space={"lr": lr},
        tune_config=tune.TuneConfig(num_samples=given.samples, metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name=given.name, storage_path=given.storage, stop={"epoch": given.epochs}
        ),
    )
    results = tuner.fit(
        resume="auto", extend=True, resume_config=tune.ResumeConfig(finished="resume")
    )
    best = results.get_best_result()
    config, row = best.config or {}, best.metrics or {}
    print(
        f"{len(results)} trials, best lr={config['lr']:.4f} "
        f"epoch={row['epoch']} loss={row['loss']:.3g}"
    )


if __name__ == "__main__":
    main()
