"""Population based training: the worst trials continue from the best, with another config.

    python examples/search/pbt.py --storage /tmp/results --name pbt --samples 4

`pbt_global.txt` in the experiment's directory says which trial took over from which. Kill the
script in the middle and start it again: all decisions stay the same.
"""

from __future__ import annotations

from shared import curve
from shared.population import train_fn

from holdfast import tune
from holdfast.tune.schedulers import PopulationBasedTraining
from holdfast.tune.search import BasicVariantGenerator

SPACE = {"lr": tune.loguniform(1e-3, 1), "momentum": tune.uniform(0, 0.9)}


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


if __name__ == "__main__":
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_mutations=SPACE,
        quantile_fraction=0.5,
        synch=True,
    )
    curve.main(__doc__, make_search, SPACE, train=train_fn, scheduler=scheduler)
