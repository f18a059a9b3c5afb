"""A search and a scheduler by their short names, as in a settings file or on a command line.

    python examples/search/by_name.py --storage /tmp/results --name by_name

With `holdfast[optuna]` installed, replace "random" by "optuna" to use TPE.
"""

from __future__ import annotations

from functools import partial

from shared import curve

from holdfast import tune

if __name__ == "__main__":
    curve.main(
        __doc__,
        partial(tune.create_searcher, "random", random_state=1),
        {**curve.SPACE, "epochs": 9},
        scheduler=tune.create_scheduler("asha", max_t=9, reduction_factor=3),
    )
