"""Tune a small neural network on the handwritten digits that ship with scikit-learn.

Each trial trains some epochs and reports each one with a checkpoint. Kill this script at any
moment and start it again with the same --name: it resumes where it was.
"""

from __future__ import annotations

import argparse
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from holdfast import tune

EPOCHS = 30
CLASSES = np.arange(10)


def load_split() -> tuple[Any, ...]:
    """1,797 pictures of 8 x 8 pixels: train, validation and test parts, scaled to 0..1."""
    pixels, labels = load_digits(return_X_y=True)
    rest, test_x, rest_y, test_y = train_test_split(
        pixels / 16.0, labels, test_size=0.2, random_state=0, stratify=labels
    )
    train_x, valid_x, train_y, valid_y = train_test_split(
        rest, rest_y, test_size=0.25, random_state=0, stratify=rest_y
    )
    return train_x, train_y, valid_x, valid_y, test_x, test_y


def train(config: dict[str, Any]) -> None:
    """One trial: resume from its checkpoint if it has one."""
    train_x, train_y, valid_x, valid_y, _, _ = load_split()
    model = MLPClassifier(
        hidden_layer_sizes=(config["width"],),
        activation=config["activation"],
        learning_rate_init=config["learning_rate"],
        random_state=0,
    )
    epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            epoch, model = pickle.loads(Path(directory, "model.pkl").read_bytes())

    while epoch < EPOCHS:
        model.partial_fit(train_x, train_y, classes=CLASSES)
        epoch += 1
        directory = tune.staging_directory()
        Path(directory, "model.pkl").write_bytes(pickle.dumps((epoch, model)))
        tune.report(
            {"accuracy": model.score(valid_x, valid_y), "loss": model.loss_},
            checkpoint=tune.Checkpoint.from_directory(directory),
        )


def make_tuner(storage_path: str, name: str | None) -> tune.Tuner:
    if name is not None and tune.Tuner.can_restore(os.path.join(storage_path, name)):
        print(f"Resuming {name} ...")
        return tune.Tuner.restore(os.path.join(storage_path, name), train, resume_errored=True)
    return tune.Tuner(
        train,
        param_space={
            "learning_rate": tune.loguniform(1e-5, 1e-1),
            "width": tune.choice([32, 64, 128]),
            "activation": tune.grid_search(["relu", "tanh", "logistic"]),
        },
        tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=8),
        run_config=tune.RunConfig(
            name=name,
            storage_path=storage_path,
            checkpoint_config=tune.CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="accuracy"
            ),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", help="name of the experiment; resumes it if it exists")
    arguments = parser.parse_args()

    results = make_tuner(arguments.storage, arguments.name).fit()
    best = results.get_best_result()
    checkpoint = best.get_best_checkpoint("accuracy", "max")
    assert best.metrics
    assert best.config
    assert checkpoint
    with checkpoint.as_directory() as directory:
        epoch, model = pickle.loads(Path(directory, "model.pkl").read_bytes())
    _, _, _, _, test_x, test_y = load_split()

    shown = ", ".join(f"{key}={value}" for key, value in best.config.items())
    print(f"Best config: {shown}")
    print(f"Validation accuracy {best.metrics['accuracy']:.4f} at the end of its training")
    accuracy = model.score(test_x, test_y)
    print(f"Test accuracy of its best checkpoint (epoch {epoch}): {accuracy:.4f}")
    print(f"Results: {results.experiment_path}")


if __name__ == "__main__":
    main()
