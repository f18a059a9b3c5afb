"""DEHB: configs evolve on small budgets, and the best are parents on larger ones.

    python examples/search/dehb.py --storage /tmp/results --name dehb --samples 44

The search gives each trial its budget in epochs, and the scheduler stops it there. A round with
max_t=9 has 22 trials.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.schedulers import DEHBScheduler
from holdfast.tune.search import DEHBSearch

SPACE = {**curve.SPACE, "epochs": 9}


def make_search() -> DEHBSearch:
    return DEHBSearch(max_t=9, points_to_evaluate=[{"lr": 0.1, "momentum": 0.9}], seed=1)


if __name__ == "__main__":
    curve.main(__doc__, make_search, SPACE, scheduler=DEHBScheduler())
