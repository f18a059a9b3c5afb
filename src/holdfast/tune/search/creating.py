"""Search algorithms by their short names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.tune.short_names import home_of

_HOMES = {
    "ax": "holdfast.tune.search.ax:AxSearch",
    "bayesopt": "holdfast.tune.search.bayesopt:BayesOptSearch",
    "bohb": "holdfast.tune.search.bohb:TuneBOHB",
    "dehb": "holdfast.scheduler.searchers.dehb:DEHBSearch",
    "hebo": "holdfast.tune.search.hebo:HEBOSearch",
    "hyperopt": "holdfast.tune.search.hyperopt:HyperOptSearch",
    "nevergrad": "holdfast.tune.search.nevergrad:NevergradSearch",
    "optuna": "holdfast.tune.search.optuna:OptunaSearch",
    "random": "holdfast.scheduler.searchers.searcher:BasicVariantGenerator",
    "variant_generator": "holdfast.scheduler.searchers.searcher:BasicVariantGenerator",
    "zoopt": "holdfast.tune.search.zoopt:ZOOptSearch",
}


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher | BasicVariantGenerator:
    """The search algorithm of this short name, made with `kwargs`.

    Raises InvalidConfig for a name that there is not, ImportError where its library is missing.
    """
    module, _, name = home_of(search_alg, _HOMES, "search algorithm").partition(":")
    found: Searcher | BasicVariantGenerator = getattr(import_module(module), name)(**kwargs)
    return found
