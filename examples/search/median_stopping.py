"""The median stopping rule: a trial stops if it is worse than the median of the others.

    python examples/search/median_stopping.py --storage /tmp/results --name median --samples 30

Every trial trains three epochs; from then on it is compared with those that came as far.
"""

from __future__ import annotations

from shared import curve

from holdfast.tune.schedulers import MedianStoppingRule
from holdfast.tune.search import BasicVariantGenerator


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


if __name__ == "__main__":
    scheduler = MedianStoppingRule(
        time_attr="training_iteration", grace_period=3, min_samples_required=3
    )
    results = curve.main(__doc__, make_search, {**curve.SPACE, "epochs": 12}, scheduler=scheduler)
    stopped = sum((result.metrics or {})["training_iteration"] < 12 for result in results)
    print(f"{stopped} were stopped early")
