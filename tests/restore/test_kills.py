"""Death of one process, or of all, at a defined moment: nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from tests.rig.bench import Bench, epochs_of

pytestmark = pytest.mark.process


def test_an_undisturbed_run_leaves_nothing_to_complain_about(bench: Bench) -> None:
    script = bench.start(samples=2, num_to_keep=2).succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4, 4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_controller_killed_before_the_first_report_is_restored(bench: Bench) -> None:
    gate = bench.gate("any-1")
    script = bench.start()
    script.wait_for("at 0 1")
    script.dies()
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_controller_killed_while_the_last_trial_ends_is_restored(bench: Bench) -> None:
    script = bench.start()
    script.wait_for("reported 0 4")
    script.dies()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_killed_worker_is_retried_from_its_checkpoint(bench: Bench) -> None:
    script, gate = bench.held_in(3, max_failures=2)
    for worker in script.processes("worker"):
        worker.kill()
    script.wait_for("begun 0 2")
    script.wait_for("begun 1 2")
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_killed_warm_parent_is_replaced(bench: Bench) -> None:
    script, gate = bench.held_in(3, max_failures=1)
    (warm,) = script.processes("warm")
    warm.kill()
    script.wait_for("begun 0 2")
    script.wait_for("begun 1 2")
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert script.left() == []
    assert bench.problems(tensorboard=True) == []


@pytest.mark.parametrize("role", ["projector", "uploader"])
def test_a_killed_service_is_started_again_and_catches_up(bench: Bench, role: str) -> None:
    gate = bench.gate("any-3")
    script = bench.start(num_to_keep=1)
    script.wait_for("at 0 3")
    (service,) = script.processes(role)
    service.kill()
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert f"the {role}" in script.stderr
    assert "SIGKILL" in script.stderr
    assert script.left() == []
    assert bench.problems(tensorboard=True) == []


def test_a_projector_that_dies_again_and_again_is_given_up_and_what_it_lacks_is_an_error(
    bench: Bench,
) -> None:
    script, gate = bench.held_in(3)
    killed = 0
    while killed < 4:
        for projector in script.processes("projector"):
            projector.kill()
            assert projector.ends()
            killed += 1
    gate.open()
    assert script.ends() == 1
    script.finish_reading()
    assert "not started again" in script.stderr
    told = "ended, but result.json and the other files of 2 trials are missing or incomplete"
    assert script.stderr.count(told) == 1
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_uploader_that_dies_again_and_again_ends_the_run_so_that_it_can_be_restored(
    bench: Bench,
) -> None:
    gate = bench.gate("any-3")
    script = bench.start()
    script.wait_for("at 0 3")
    killed = 0
    while killed < 4:
        for uploader in script.processes("uploader"):
            uploader.kill()
            assert uploader.ends()
            killed += 1
    assert script.ends() == 1
    script.finish_reading()
    assert "not started again" in script.stderr
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_everything_killed_at_once_is_restored(bench: Bench) -> None:
    script, gate = bench.held_in(3, num_to_keep=1)
    everything = script.processes()
    roles = sorted(process.role for process in everything)
    assert roles == ["projector", "script", "uploader", "warm", "worker", "worker"]
    for process in everything:
        process.kill()
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []
