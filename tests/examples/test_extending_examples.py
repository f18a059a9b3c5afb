"""The examples of stoppers and of extended experiments: killed and resumed to their end."""

from __future__ import annotations

import re

import pytest

from tests.examples.killing import (
    iterations,
    killed_and_gone_on,
    started,
    trials_of,
)
from tests.rig.bench import Bench

pytestmark = pytest.mark.process


@pytest.mark.nightly
def test_stoppers_end_each_trial_when_it_has_nothing_to_gain(bench: Bench) -> None:
    script = killed_and_gone_on(bench, "extending/stoppers", "--samples", "2", at="1 4")
    ends = [int(end) for end in re.findall(r"(\d+) iterations, loss", script.stdout)]
    assert len(ends) == 2
    assert all(5 <= end <= 100 for end in ends)
    # Started again, it has the same results, and runs nothing.
    again = started(bench, "extending/stoppers", "--samples", "2").succeeds()
    assert again.stdout == script.stdout


def test_an_experiment_is_made_longer_deeper_and_narrower_and_killed_meanwhile(
    bench: Bench,
) -> None:
    wide = started(bench, "extending/extend", "--samples", "3", "--epochs", "2").succeeds()
    assert re.search(r"3 trials, best .* epoch=2 ", wide.stdout)
    deeper = ("--samples", "5", "--epochs", "4", "--near", "0.05")
    narrow = killed_and_gone_on(bench, "extending/extend", *deeper, at="4 3")
    assert re.search(r"5 trials, best .* epoch=4 ", narrow.stdout)
    assert iterations(bench) == [4] * 5
    # Ended trials resumed from their checkpoints, and so did killed ones.
    assert all(trial.attempt > 1 for trial in trials_of(bench)[:3])
    rates = [trial.spec.config["lr"] for trial in trials_of(bench)][3:]
    assert all(0.025 <= rate <= 0.09 for rate in rates)
