"""Several workers that train one trial: their script is killed, interrupted and resumed."""

from __future__ import annotations

import signal

import pytest

from tests.rig.bench import Bench, epochs_of

pytestmark = pytest.mark.process


def test_a_killed_script_leaves_no_rank_and_resumes_where_all_ranks_were(bench: Bench) -> None:
    gate = bench.gate("any-3")
    script = bench.start(ranks=2, num_to_keep=1)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.dies()
    gate.open()
    assert epochs_of(bench.restore(ranks=2).succeeds()) == [4, 4]
    ran = [(note["trial"], note["iteration"]) for note in bench.notes() if note["what"] == "ran"]
    again = sorted(iteration for trial, iteration in ran if ran.count((trial, iteration)) > 1)
    assert again == [3, 3, 3, 3]  # the interrupted epoch of each trial, twice
    assert bench.problems(tensorboard=True) == []


def test_ctrl_c_ends_all_ranks_and_the_tuner_continues(bench: Bench) -> None:
    gate = bench.gate("any-2")
    script = bench.start(ranks=2)
    script.wait_for("at 0 2")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    script.finish_reading()
    assert f"Tuner.restore('{bench.root}').fit()" in script.stderr
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore(ranks=2).succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []
