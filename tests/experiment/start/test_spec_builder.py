"""The settings that an experiment takes from its first request."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from holdfast.experiment.start.request import seed_of
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator


@pytest.mark.parametrize("seed", [0, 7, -(2**63) + 1, 2**63 - 1])
def test_the_seed_of_an_experiment_is_that_of_its_search(seed: int) -> None:
    assert seed_of(BasicVariantGenerator(random_state=seed)) == seed


def test_a_number_of_numpy_is_a_seed_as_any_other() -> None:
    assert seed_of(BasicVariantGenerator(random_state=np.int64(7))) == 7


def test_a_seed_that_is_too_large_for_the_journal_is_still_one_seed() -> None:
    large = 2**200 + 5
    assert seed_of(BasicVariantGenerator(random_state=large)) == 5
    assert seed_of(BasicVariantGenerator(random_state=-large)) == 2**63 - 5


@pytest.mark.parametrize("seed", [None, "abc", 1.5, random.Random(1), [1]])
def test_what_is_not_a_number_is_not_the_seed_of_an_experiment(seed: Any) -> None:
    search = SimpleNamespace(seed=seed)
    one, other = seed_of(search), seed_of(search)
    assert 0 <= min(one, other) <= max(one, other) < 2**63
    assert one != other
