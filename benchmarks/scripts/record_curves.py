"""Trains the models whose curves are in benchmarks/data: `record_curves.py FOLDER [DATASET ...]`.

scikit-learn's MLPClassifier with plain SGD, one `partial_fit` per epoch, on half or a third of a
data set of scikit-learn. Stores the error and the log loss on the rest after each epoch, for every
point of a grid. It takes about ten minutes of one core; the last digits in the file depend on the
version of scikit-learn and the CPU.
"""

import sys
import time
import warnings
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

SEED = 6
# The value of a training that has diverged, so that float32 holds it and plots can show it.
MOST = 10.0
RATES = np.geomspace(1e-4, 1.0, 13)
# By data set: how it is loaded, the part that is trained on, epochs, the grid.
DATASETS: Mapping[str, tuple[Any, float, int, Mapping[str, Any]]] = {
    "digits": (load_digits, 1 / 3, 27, {
        "lr": RATES, "hidden": [8, 16, 32, 64], "alpha": [1e-6, 1e-3, 1.0], "batch": [8, 32, 128],
    }),
    "breast_cancer": (load_breast_cancer, 1 / 2, 81, {
        "lr": RATES, "hidden": [4, 16, 64], "alpha": [1e-6, 1e-2, 1.0], "batch": [8, 32],
    }),
    "wine": (load_wine, 1 / 2, 27, {
        "lr": RATES, "alpha": [1e-6, 1e-2, 1.0], "batch": [4, 16, 64],
        "activation": ["identity", "logistic", "relu", "tanh"],
    }),
}  # fmt: skip


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(DATASETS)
    for name in names:
        began_s = time.monotonic()
        arrays = record(*DATASETS[name])
        np.savez_compressed(folder / f"{name}.npz", **arrays)
        print(f"{name}: {time.monotonic() - began_s:.0f} s")


def record(load: Any, part: float, epochs: int, grid: Mapping[str, Any]) -> dict[str, Any]:
    """Each axis by its name; `error` and `log_loss` with the axes in that order, then epochs."""
    x, y = load(return_X_y=True)
    x, x_rest, y, y_rest = train_test_split(x, y, train_size=part, random_state=SEED, stratify=y)
    scaler = StandardScaler().fit(x)
    data = scaler.transform(x), y, scaler.transform(x_rest), y_rest
    found = [
        train(data, epochs, dict(zip(grid, at, strict=True))) for at in product(*grid.values())
    ]
    shape = (*map(len, grid.values()), epochs)
    return {
        **{name: np.asarray(values) for name, values in grid.items()},
        "axes": np.asarray(list(grid)),
        "error": np.asarray([error for error, _ in found], np.float32).reshape(shape),
        "log_loss": np.asarray([loss for _, loss in found], np.float32).reshape(shape),
        "made_with": np.asarray(f"scikit-learn {sklearn.__version__}, NumPy {np.__version__}"),
    }


def train(data: Any, epochs: int, config: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    x, y, x_rest, y_rest = data
    model = MLPClassifier(
        hidden_layer_sizes=(int(config.get("hidden", 16)),),
        activation=config.get("activation", "relu"),
        alpha=config["alpha"],
        batch_size=config["batch"],
        learning_rate_init=config["lr"],
        solver="sgd",
        momentum=0.9,
        random_state=SEED,
    )
    classes = np.unique(y)
    errors, losses = [], []
    for _ in range(epochs):
        try:
            model.partial_fit(x, y, classes=classes)
            chances = np.nan_to_num(model.predict_proba(x_rest), nan=1 / len(classes))
            error = float(np.mean(classes[chances.argmax(axis=1)] != y_rest))
            loss = min(MOST, float(log_loss(y_rest, chances, labels=classes)))
        except ValueError as diverged:
            if "non-finite" not in str(diverged):
                raise
            error, loss = 1 - 1 / len(classes), MOST
        errors.append(round(error, 4))
        losses.append(round(loss, 4))
    return errors, losses


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
