"""`holdfast.tune.search`: what chooses the next config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.scheduler.search import (
        BasicVariantGenerator as BasicVariantGenerator,
    )
    from holdfast.scheduler.search import (
        Searcher as Searcher,
    )
    from holdfast.trial.space import grid_search as grid_search
    from holdfast.tune.search.library import LibrarySearch as LibrarySearch

_HOMES = {
    "LibrarySearch": "holdfast.tune.search.library",
    "BasicVariantGenerator": "holdfast.scheduler.search",
    "Searcher": "holdfast.scheduler.search",
    "grid_search": "holdfast.trial.space",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
