"""The examples of stoppers and of extended experiments run, and do what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.bench import Bench, workbench

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, EXAMPLES / "stoppers.py") as made:
        yield made


def test_stoppers_end_each_trial_when_it_has_nothing_to_gain(bench: Bench) -> None:
    arguments = ("--storage", str(bench.storage), "--samples", "2")
    script = bench.run(EXAMPLES / "stoppers.py", *arguments).succeeds()
    ends = [int(end) for end in re.findall(r"(\d+) iterations, loss", script.stdout)]
    assert len(ends) == 2
    assert all(5 <= end <= 100 for end in ends)
    # Started again, it has the same results, and runs nothing.
    assert bench.run(EXAMPLES / "stoppers.py", *arguments).succeeds().stdout == script.stdout


def test_an_experiment_is_made_narrower_then_deeper(bench: Bench) -> None:
    script = bench.run(EXAMPLES / "extend.py", "--storage", str(bench.storage)).succeeds()
    found = re.findall(r"(\w+): (\d+) trials, .* epoch=(\d+) loss=(.*)", script.stdout)
    assert [line[:3] for line in found] == [
        ("wide", "6", "5"),
        ("narrower", "10", "5"),
        ("deeper", "10", "15"),
    ]
    losses = [float(loss) for *_, loss in found]
    assert losses[0] >= losses[1] > losses[2]
