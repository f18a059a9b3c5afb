"""PB2: population based training in which a bandit chooses the configs, between bounds.

    python examples/search/pb2.py --storage /tmp/results --name pb2 --samples 4

The space is empty: parameters with bounds are drawn before a trial starts.
"""

from __future__ import annotations

from shared import curve
from shared.population import train_fn

from holdfast.tune.schedulers import PB2
from holdfast.tune.search import BasicVariantGenerator


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


if __name__ == "__main__":
    scheduler = PB2(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_bounds={"lr": [0.001, 1.0], "momentum": [0.0, 0.9]},
        quantile_fraction=0.5,
        synch=True,
    )
    curve.main(__doc__, make_search, {}, train=train_fn, scheduler=scheduler)
