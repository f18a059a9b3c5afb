"""Trainings in which a parameter should change on the way: the purpose of population based
training.

The noisy quadratic model (Zhang et al., "Which Algorithmic Choices Matter at Which Batch Sizes?",
2019): SGD on a quadratic loss with curvatures 1, 1/2, 1/3 ... and gradients whose noise is as
large as the curvature. The expected loss follows exactly from the step before, and a rate that
falls with time beats every constant one. That loss, without noise, is reported. It has the bound
0, which no schedule reaches in the time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.tasks.space import Axis, Config
from benchmarks.tasks.task import Task

Vector = NDArray[np.float64]

EPOCHS = 40
_DIRECTIONS = 100
_CURVATURES = 1.0 / np.arange(1, _DIRECTIONS + 1)
# A training that diverges is cut off here.
_FURTHEST = 1e6
RATE = Axis(name="lr", low=1e-3, high=1.9, log=True)


def train(steps: int, batch: float, squares: Vector, config: Config) -> tuple[Vector, float]:
    """`squares` are the expected squared distances from the minimum, in each direction."""
    rate = config["lr"]
    shrinks = (1 - rate * _CURVATURES) ** 2
    noise = rate**2 * _CURVATURES / batch
    for _ in range(steps):
        squares = np.minimum(shrinks * squares + noise, _FURTHEST)
    return squares, float(0.5 * np.sum(_CURVATURES * squares))


def _train_in_batches(squares: Vector, config: Config) -> tuple[Vector, float]:
    """Train with larger batches: they have less noise, and there is time for fewer of them."""
    return train(round(80 / (3 + config["batch"])), config["batch"], squares, config)


QUADRATIC = Task(
    name="quadratic",
    about="SGD on a noisy quadratic, whose rate should fall; 0 is a bound that is not reached",
    space=[RATE],
    epochs=EPOCHS,
    best=0.0,
    begun=np.ones(_DIRECTIONS),
    step=partial(train, 20, 1.0),
    evolves=True,
)

# As UNEVEN; it ends between two moments at which trials may be cloned.
UNEVEN_QUADRATIC = replace(
    QUADRATIC,
    name="uneven_quadratic",
    epochs=38,
    seconds=lambda config: 1.0 + 0.1 * config["lr"],
)

QUADRATIC_IN_BATCHES = Task(
    name="batches",
    about="the same with a batch size, which should grow; 0 is a bound that is not reached",
    space=[RATE, Axis(name="batch", low=1, high=32, log=True, integer=True)],
    epochs=EPOCHS,
    best=0.0,
    begun=np.ones(_DIRECTIONS),
    step=_train_in_batches,
    evolves=True,
)
