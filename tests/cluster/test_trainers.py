"""A training whose ranks are on machines that go and come back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.nodes.machines import Machines
from tests.rig.nodes.ssh_runs import ssh_nodes
from tests.rig.nodes.training import TRAINING, check_numbers, rows_of, samples_of

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, TRAINING) as made:
        yield made


@pytest.fixture
def three(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three machines with two CPUs each. None has a process at the end."""
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines"), 3, cpus_per_node=2) as made:
        yield made
        made.wait_until_idle()


def test_a_training_shrinks_when_a_machine_is_lost_and_grows_when_it_is_back(
    bench: Bench, three: Machines
) -> None:
    whole = bench.gate("of-6")
    script = bench.start(
        workers=[2, 6], rows=72, batch=6, epochs=10_000, steps_of_all=3, step_s=0.2
    )
    (held,) = {script.wait_for(f"at 6 {rank}").split()[-1] for rank in range(6)}
    smaller = bench.gate("of-4")
    lost = three[0]
    lost.kill_all()
    assert script.wait_for("at 4 0").split()[-1] == held, "not from the newest checkpoint"
    lost.boot()
    smaller.open()
    whole.open()
    script.succeeds()
    assert script.left() == []
    rows = rows_of(bench.root)
    sizes = [len(row["ranks"]) for row in rows]
    assert (sizes[int(held) - 1], sizes[-3:]) == (4, [6, 6, 6])
    # An epoch has its rows once, however many ranks shared them; the last one is not complete.
    got = samples_of(rows)
    assert {epoch: got[epoch] for epoch in range(max(got))} == {
        epoch: list(range(72)) for epoch in range(max(got))
    }
    for attempt in {note["attempt"] for note in bench.notes()}:
        notes = [note for note in bench.notes() if note["attempt"] == attempt]
        check_numbers(notes)
        for note in notes:
            saved = sizes[note["step"] - 1] if note["step"] else 0
            assert note["files"] == {f"of-rank-{rank}": note["step"] for rank in range(saved)}
            assert note["total"] == sum(range(100_000)) + 1000 * note["rank"]
    assert bench.problems() == []


@pytest.mark.nightly
def test_a_training_saves_and_shrinks_when_a_node_announces_its_end(bench: Bench) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=2&cpus_per_node=2"
    whole = bench.gate("of-4")
    script = bench.start(
        workers=[1, 4], rows=72, batch=6, epochs=10_000, steps_of_all=3, step_s=0.2
    )
    held = int(script.wait_for("at 4 0").split()[-1])
    smaller = bench.gate("of-2")
    agent = script.processes("agent")[0]
    agent.signal(signal.SIGTERM)
    assert "leaves in 30 s: SIGTERM" in script.said("leaves")
    whole.open()
    script.wait_for(f"at 2 0 {held + 1}")  # the step that was under way is saved
    assert "Preempted: rank" in script.said("continues with the workers")
    assert "leaves (SIGTERM)" in script.said("continues with the workers")
    agent.kill()
    smaller.open()
    script.succeeds()
    assert script.left() == []
    rows = rows_of(bench.root)
    assert [len(row["ranks"]) for row in rows[-3:]] == [4, 4, 4]
    got = samples_of(rows)
    assert all(got[epoch] == list(range(72)) for epoch in range(max(got)))
    assert bench.problems() == []
