"""`holdfast.tune.search`: what chooses the next config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.scheduler.searchers.concurrency_limiter import (
        ConcurrencyLimiter as ConcurrencyLimiter,
    )
    from holdfast.scheduler.searchers.dehb import DEHBSearch as DEHBSearch
    from holdfast.scheduler.searchers.repeater import Repeater as Repeater
    from holdfast.scheduler.searchers.searcher import (
        BasicVariantGenerator as BasicVariantGenerator,
    )
    from holdfast.scheduler.searchers.searcher import (
        Searcher as Searcher,
    )
    from holdfast.trial.space import grid_search as grid_search
    from holdfast.tune.search.ax import AxSearch as AxSearch
    from holdfast.tune.search.bayesopt import BayesOptSearch as BayesOptSearch
    from holdfast.tune.search.bohb import TuneBOHB as TuneBOHB
    from holdfast.tune.search.creating import create_searcher as create_searcher
    from holdfast.tune.search.hebo import HEBOSearch as HEBOSearch
    from holdfast.tune.search.hyperopt import HyperOptSearch as HyperOptSearch
    from holdfast.tune.search.library import LibrarySearch as LibrarySearch
    from holdfast.tune.search.nevergrad import NevergradSearch as NevergradSearch
    from holdfast.tune.search.zoopt import ZOOptSearch as ZOOptSearch

_HOMES = {
    "AxSearch": "holdfast.tune.search.ax",
    "BayesOptSearch": "holdfast.tune.search.bayesopt",
    "HEBOSearch": "holdfast.tune.search.hebo",
    "HyperOptSearch": "holdfast.tune.search.hyperopt",
    "NevergradSearch": "holdfast.tune.search.nevergrad",
    "TuneBOHB": "holdfast.tune.search.bohb",
    "ZOOptSearch": "holdfast.tune.search.zoopt",
    "BasicVariantGenerator": "holdfast.scheduler.searchers.searcher",
    "ConcurrencyLimiter": "holdfast.scheduler.searchers.concurrency_limiter",
    "DEHBSearch": "holdfast.scheduler.searchers.dehb",
    "LibrarySearch": "holdfast.tune.search.library",
    "OptunaSearch": "holdfast.tune.search.optuna",
    "Repeater": "holdfast.scheduler.searchers.repeater",
    "Searcher": "holdfast.scheduler.searchers.searcher",
    "create_searcher": "holdfast.tune.search.creating",
    "grid_search": "holdfast.trial.space",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
