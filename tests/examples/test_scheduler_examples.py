"""The examples of schedulers: killed and resumed to their end."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.examples.killing import (
    iterations,
    killed_and_gone_on,
    trials_of,
)
from tests.rig.bench import Bench
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("example", "samples", "at", "told"),
    rest_nightly(
        1,
        [
            ("asha", 6, "4 1", "epochs, of 162 without a scheduler"),
            ("resources", 3, "2 1", "threads"),
            ("median_stopping", 5, "4 1", "were stopped early"),
            ("pasha", 4, "3 1", "nobody was trained for more than 3 epochs"),
            ("mo_asha", 4, "3 1", "waves: loss"),
            ("by_name", 3, "2 1", "with {'lr'"),
        ],
    ),
)
def test_an_example_resumes_after_a_kill(
    bench: Bench, example: str, samples: int, at: str, told: str
) -> None:
    output = killed_and_gone_on(
        bench, f"search/{example}", "--samples", str(samples), at=at
    ).stdout
    assert "Resuming run" in output
    assert f"{samples} trials, the best loss is" in output
    assert told in output


def test_a_bracket_of_hyperband_ends_with_one_trial_also_after_a_kill(bench: Bench) -> None:
    killed_and_gone_on(bench, "search/hyperband", "--samples", "6", at="4 1")
    assert Counter(iterations(bench)) == {1: 4, 3: 1, 9: 1}


def test_dehb_resumes_after_a_kill_and_each_trial_gets_its_budget(bench: Bench) -> None:
    # It is killed in the first trial at the next budget.
    killed_and_gone_on(bench, "search/dehb", "--samples", "13", at="9 1")
    budgets = [trial.spec.config["dehb"]["budget"] for trial in trials_of(bench)]
    assert iterations(bench) == budgets
    assert budgets.count(1) == 9
