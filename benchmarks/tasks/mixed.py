"""An invented network: categories, integers, logarithms, and parameters that depend on others."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

from benchmarks.tasks.analytic import falling
from benchmarks.tasks.front import lacking
from benchmarks.tasks.space import Axis, Config
from benchmarks.tasks.task import Task

EPOCHS = 27
# The best configuration: the loss is 0 there and nowhere else.
BEST: Config = {
    "optimizer": "sgd", "lr": 0.1, "momentum": 0.9,
    "layers": 3, "width": 128, "dropout": 0.2, "activation": "relu",
}  # fmt: skip
_BEST_RATE = {"sgd": 0.1, "adam": 0.002, "rmsprop": 0.0005}
_OPTIMIZERS = {"sgd": 0.0, "adam": 0.08, "rmsprop": 0.25}
_ACTIVATIONS = {"relu": 0.0, "tanh": 0.15, "sigmoid": 0.5}


def final_loss(config: Config) -> float:
    """The final loss: 0 at BEST; each parameter that differs adds to it."""
    kind = config["optimizer"]
    decades_off = math.log10(config["lr"] / _BEST_RATE[kind])
    loss: float = _OPTIMIZERS[kind] + _ACTIVATIONS[config["activation"]]
    loss += 0.25 * decades_off**2 + 0.06 * (config["layers"] - BEST["layers"]) ** 2
    loss += 0.05 * math.log2(config["width"] / BEST["width"]) ** 2
    loss += 1.5 * (config["dropout"] - BEST["dropout"]) ** 2
    if kind == "sgd":
        loss += 0.6 * (config["momentum"] - BEST["momentum"]) ** 2
    return loss


def slowness(config: Config) -> float:
    """Small rates and deep networks are slow; Adam is quick at first."""
    decades_below = -math.log10(config["lr"] / _BEST_RATE[config["optimizer"]])
    quickness = 0.3 if config["optimizer"] == "adam" else 0.0
    rest: float = 0.35 + 0.2 * decades_below + 0.08 * (config["layers"] - 3) - quickness
    return min(1.0, max(0.0, rest))


def _step(epoch: Any, config: Config) -> tuple[int, float]:
    return epoch + 1, falling(final_loss(config), slowness(config), epoch + 1, EPOCHS)


NETWORK = Task(
    name="network",
    about="7 parameters: categories, integers, logarithms, a condition (momentum is SGD's alone); "
    "an epoch takes longer in wide and deep networks",
    space=[
        Axis(name="optimizer", choices=("sgd", "adam", "rmsprop")),
        Axis(name="lr", low=1e-5, high=1.0, log=True),
        Axis(name="momentum", low=0.0, high=0.99, where=("optimizer", "sgd")),
        Axis(name="layers", low=1, high=6, integer=True),
        Axis(name="width", low=16, high=1024, log=True, integer=True),
        Axis(name="dropout", low=0.0, high=0.7),
        Axis(name="activation", choices=("relu", "tanh", "sigmoid")),
    ],
    epochs=EPOCHS,
    best=0.0,
    begun=0,
    step=_step,
    noise=0.01,
    seconds=lambda config: 0.5 + config["layers"] * config["width"] / 1024,
)


def size(config: Config) -> float:
    """From 0, for the smallest network, to 1, for the largest: the logarithm of layers x width."""
    return math.log(config["layers"] * config["width"] / 16) / math.log(6 * 1024 / 16)


def _best_by_size() -> list[tuple[float, float]]:
    """The best loss for each size; the other parameters do not depend on it."""
    shapes = product(range(1, 7), range(16, 1025))
    configs = [{**BEST, "layers": layers, "width": width} for layers, width in shapes]
    return [(size(config), final_loss(config)) for config in configs]


SMALL_NETWORK = replace(
    NETWORK,
    name="small network",
    about="network, which should be small as well; without noise",
    noise=0.0,
    cost=size,
    # Three quarters of random configurations end with a lower loss.
    worth=lacking(_best_by_size(), size, bound=(1.0, 2.0)),
)
