"""Search algorithms by their short names."""

from __future__ import annotations

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search import BasicVariantGenerator


@pytest.mark.parametrize("name", ["random", "variant_generator"])
def test_a_short_name_makes_the_search_with_what_is_given(name: str) -> None:
    search = tune.create_searcher(name, max_concurrent=3)
    assert isinstance(search, BasicVariantGenerator)
    assert search.max_concurrent == 3


def test_an_unknown_name_is_reported_with_those_that_there_are() -> None:
    with pytest.raises(
        InvalidConfig, match=r"no search algorithm 'grid', only ax, .*optuna.*zoopt"
    ):
        tune.create_searcher("grid")
    with pytest.raises(InvalidConfig, match=r"Did you mean 'optuna'\?"):
        tune.create_searcher("optun")
