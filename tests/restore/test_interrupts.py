"""Ctrl-C, SIGTERM and errors of the script: the run can be gone on with, and nobody stays."""

from __future__ import annotations

import os
import signal

import pytest

from holdfast.testing.bench import Bench, results

pytestmark = pytest.mark.process


def test_ctrl_c_stops_the_trials_and_tells_how_to_go_on(bench: Bench) -> None:
    script, gate = bench.held_in(3)
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    script.finish_reading()
    assert "KeyboardInterrupt" in script.stderr
    assert f"Tuner.restore('{bench.root}', trainable=...).fit()" in script.stderr
    assert script.left() == []
    gate.open()
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_second_ctrl_c_kills_without_waiting_for_the_grace(bench: Bench) -> None:
    gate = bench.gate("any-3")
    bench.environ["HOLDFAST_STOP_GRACE_S"] = "3600"
    script = bench.start(ignore_sigterm=True)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.signal(signal.SIGINT)
    script.wait_for("asked to stop 0")
    script.signal(signal.SIGINT)
    assert script.ends() != 0
    assert script.left() == []
    gate.open()
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_trial_that_ignores_being_stopped_is_killed_after_the_grace(bench: Bench) -> None:
    gate = bench.gate("any-3")
    bench.environ["HOLDFAST_STOP_GRACE_S"] = "0.2"
    script = bench.start(ignore_sigterm=True)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []
    gate.open()
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]


def test_an_error_in_the_script_after_fit_leaves_a_finished_experiment(bench: Bench) -> None:
    script = bench.start(raise_after=True)
    assert script.ends() == 1
    assert script.left() == []
    before = len(bench.notes())
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]
    assert len(bench.notes()) == before  # nothing ran again


def test_sigterm_ends_the_script_and_all_that_it_started(bench: Bench) -> None:
    script, gate = bench.held_in(3)
    script.signal(signal.SIGTERM)
    assert script.ends() == -signal.SIGTERM
    assert script.left() == []
    gate.open()
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_ctrl_c_before_the_first_trial_runs_leaves_what_can_be_restored(bench: Bench) -> None:
    script = bench.start()
    script.wait_for("made")
    script.signal(signal.SIGINT)
    assert script.ends() != 0
    assert script.left() == []
    again = bench.start(go_on=True).succeeds()
    assert [found["epoch"] for found in results(again)] == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_ctrl_c_to_the_whole_terminal_group_is_the_same(bench: Bench) -> None:
    script, gate = bench.held_in(3)
    os.killpg(script.process.pid, signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []
    gate.open()
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]
    assert bench.problems(tensorboard=True) == []
