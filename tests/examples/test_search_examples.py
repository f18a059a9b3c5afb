"""The examples of search that need no library: killed and resumed to their end."""

from __future__ import annotations

import pytest

from tests.examples.killing import drawn, killed_and_gone_on, started
from tests.rig.bench import Bench

pytestmark = pytest.mark.process


def test_random_search_begins_with_its_points_and_runs_the_grid(bench: Bench) -> None:
    output = killed_and_gone_on(bench, "search/random_search", "--samples", "2", at="1 3").stdout
    first, second, *rest = drawn(bench)
    assert first == {"lr": 0.1, "momentum": 0.9, "features": 4}
    assert second == {"lr": 0.1, "momentum": 0.9, "features": 16}
    assert [config["features"] for config in rest] == [4, 16]
    assert rest[0]["lr"] == rest[1]["lr"]
    assert "4 trials, the best loss is" in output


def test_a_searcher_of_ones_own_resumes_after_a_kill(bench: Bench) -> None:
    # Two at a time: the first has ended, and the others were chosen with its result.
    output = killed_and_gone_on(bench, "search/own_searcher", "--samples", "5", at="2 3").stdout
    assert "5 trials, the best loss is" in output
    more = started(bench, "search/own_searcher", "--samples", "6").succeeds()
    assert "6 trials, the best loss is" in more.stdout
