"""`holdfast.tune.search`: search algorithms, which choose the next config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.start.short_names import create_searcher as create_searcher
    from holdfast.scheduler.searchers.concurrency_limiter import (
        ConcurrencyLimiter as ConcurrencyLimiter,
    )
    from holdfast.scheduler.searchers.concurrency_limiter import Repeater as Repeater
    from holdfast.scheduler.searchers.dehb import DEHBSearch as DEHBSearch
    from holdfast.scheduler.searchers.searcher import (
        UNDEFINED_METRIC_MODE as UNDEFINED_METRIC_MODE,
    )
    from holdfast.scheduler.searchers.searcher import (
        UNDEFINED_SEARCH_SPACE as UNDEFINED_SEARCH_SPACE,
    )
    from holdfast.scheduler.searchers.searcher import (
        UNRESOLVED_SEARCH_SPACE as UNRESOLVED_SEARCH_SPACE,
    )
    from holdfast.scheduler.searchers.searcher import (
        BasicVariantGenerator as BasicVariantGenerator,
    )
    from holdfast.scheduler.searchers.searcher import Searcher as Searcher
    from holdfast.trial.space import grid_search as grid_search
    from holdfast.tune.search.auto import AutoSearch as AutoSearch
    from holdfast.tune.search.ax import AxSearch as AxSearch
    from holdfast.tune.search.bayesopt import BayesOptSearch as BayesOptSearch
    from holdfast.tune.search.bohb import TuneBOHB as TuneBOHB
    from holdfast.tune.search.hebo import HEBOSearch as HEBOSearch
    from holdfast.tune.search.hyperopt import HyperOptSearch as HyperOptSearch
    from holdfast.tune.search.library import LibrarySearch as LibrarySearch
    from holdfast.tune.search.nevergrad import NevergradSearch as NevergradSearch
    from holdfast.tune.search.optuna import OptunaSearch as OptunaSearch
    from holdfast.tune.search.zoopt import ZOOptSearch as ZOOptSearch

__getattr__, __dir__, __all__ = lazy(__name__)
