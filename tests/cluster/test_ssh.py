"""The same script on machines that ssh reaches: nothing in it names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nodes.machines import Machine, Machines
from tests.rig.nodes.ssh_runs import ssh_nodes

pytestmark = [pytest.mark.process, pytest.mark.server]


@pytest.fixture
def nodes(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines")) as made:
        yield made


def test_a_script_that_is_not_edited_runs_its_trials_on_machines(
    bench: Bench, nodes: Machines
) -> None:
    script, gate = bench.held_in(2, checkpoint_every=9, prints=True)
    workers = {process.pid for process in script.processes("worker")}
    for machine in nodes.all:
        assert len(workers.intersection(machine.pids())) == 1
        assert list(machine.disk.glob("fast disk/holdfast-nodes-*/*"))
    gate.open()
    script.succeeds()
    nodes.wait_until_idle()
    for machine in nodes.all:
        assert not list(machine.disk.glob("fast disk/*")), "a scratch folder is left"
    assert epochs_of(script) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_nothing_is_left_on_machines_when_the_script_is_killed(
    bench: Bench, nodes: Machines
) -> None:
    script, _ = bench.held_in(2, checkpoint_every=9)
    script.kill()
    assert script.left() == []
    nodes.wait_until_idle()


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(Machine.kill_all, id="killed", marks=pytest.mark.nightly),
        pytest.param(Machine.drop, id="cut off"),
        pytest.param(Machine.power_off, id="off", marks=pytest.mark.nightly),
        pytest.param(Machine.unplug, id="unplugged", marks=pytest.mark.nightly),
    ],
)
def test_a_trial_whose_machine_is_lost_runs_again_on_another(
    bench: Bench, nodes: Machines, cut: Callable[[Machine], None]
) -> None:
    script, gate = bench.held_in(3, checkpoint_every=9, max_failures=1)
    lost = nodes[0]
    workers = {process.pid for process in script.processes("worker")}.intersection(lost.pids())
    assert len(workers) == 1
    cut(lost)
    assert "node1" in script.said("is lost")
    # The agent there has no word from here, and ends its worker before the trial begins anew.
    assert not workers.intersection(lost.pids())
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert bench.problems(tensorboard=True) == []
