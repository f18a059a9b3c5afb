"""Search algorithms by their short names."""

from __future__ import annotations

from typing import Any

from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.tune.short_names import named

# Public names of holdfast.tune.search.
_CLASSES = {
    "ax": "AxSearch",
    "bayesopt": "BayesOptSearch",
    "bohb": "TuneBOHB",
    "dehb": "DEHBSearch",
    "hebo": "HEBOSearch",
    "hyperopt": "HyperOptSearch",
    "nevergrad": "NevergradSearch",
    "optuna": "OptunaSearch",
    "random": "BasicVariantGenerator",
    "variant_generator": "BasicVariantGenerator",
    "zoopt": "ZOOptSearch",
}


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher | BasicVariantGenerator:
    """The search algorithm with this short name, made with `kwargs`.

    Raises InvalidConfig for an unknown name, ImportError if its library is missing.
    """
    kind = named(search_alg, _CLASSES, "holdfast.tune.search", "search algorithm")
    found: Searcher | BasicVariantGenerator = kind(**kwargs)
    return found
