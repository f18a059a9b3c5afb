"""A search by its short name, as a setting or a command line would give it.

python examples/search/by_name.py --storage /tmp/results --name by_name
"""

from __future__ import annotations

from functools import partial

import curve

from holdfast import tune

if __name__ == "__main__":
    curve.main(__doc__, partial(tune.create_searcher, "optuna", seed=1))
