"""A search that is asked for two configs only when the two before have ended.

    python examples/search/limiter.py --storage /tmp/results --name limiter

With `batch`, Optuna is told of both ends before it chooses the next two: as many trials run as
there is room for, and none is chosen on half of the knowledge.
"""

from __future__ import annotations

import curve

from holdfast.tune.search import ConcurrencyLimiter
from holdfast.tune.search.optuna import OptunaSearch


def make_search() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(OptunaSearch(seed=1), max_concurrent=2, batch=True)


if __name__ == "__main__":
    curve.main(__doc__, make_search)
