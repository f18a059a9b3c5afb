"""Nodes that do not see the storage, and nodes whose disks are full."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nodes.ssh_runs import SCRATCH, ssh_nodes
from tests.rig.script import UserScript

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]


@pytest.fixture
def storage(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this machine's disk, which a node sees only if a test lets it."""
    made = tmp_path_factory.mktemp("storage")
    bench.options["storage"] = str(made)
    return made


def warnings_of(script: UserScript, text: str) -> list[str]:
    script.finish_reading()
    return [line for line in script.stderr.splitlines() if text in line]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "looks_like_it",
    [
        pytest.param(False, id="no such folder"),
        # The claim may become visible late, so a node looks for it for half a minute.
        pytest.param(True, id="no claim"),
    ],
)
def test_one_warning_names_the_nodes_that_do_not_see_the_storage_and_metrics_are_kept(
    bench: Bench, storage: Path, tmp_path_factory: pytest.TempPathFactory, looks_like_it: bool
) -> None:
    home = tmp_path_factory.mktemp("machines")
    with ssh_nodes(bench, home, 3, only={"node3": [storage]}) as nodes:
        # The first one has no such folder, the second one another disk there, and what the third
        # one writes does not reach this machine.
        disk = nodes[1].disk / storage.relative_to("/tmp")
        (disk / "run" if looks_like_it else disk).mkdir(parents=True)
        nodes[2].run("mount", "-o", "remount,bind,ro", str(storage))
        gate = bench.gate("any-1")
        script = bench.start(samples=2, checkpoint_every=9)
        for trial in range(3):
            script.wait_for(f"at {trial} 1")
        gate.open()
        script.succeeds()
    # One, unless the nodes start long after each other.
    told = " ".join(warnings_of(script, "not see the storage"))
    for node in nodes.names:
        assert len(re.findall(rf"\b{node}\b", told)) == 1
    for text in (
        f" not see the storage {storage}/run: ",
        "there is no such folder on this node",
        "this run's claim" if looks_like_it else "there is no such folder",
        "node3 (cannot put",
        "Read-only file system",
        "Metrics are kept, but report() with a checkpoint raises there. Use cloud storage or a",
    ):
        assert text in told
    assert epochs_of(script) == [4, 4, 4, 4]
    assert bench.problems(storage / "run", tensorboard=True) == []


def test_a_checkpoint_of_a_node_that_does_not_see_the_storage_is_an_error_that_says_what_to_use(
    bench: Bench, storage: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("machines")
    with ssh_nodes(bench, home, only={"node1": [storage]}):
        script, gate = bench.held_in(2, checkpoint_every=2)
        gate.open()
        script.succeeds()
    assert len(warnings_of(script, "not see the storage")) == 1
    well, badly = sorted(results(script), key=lambda found: found["error"] is not None)
    assert (well["epoch"], well["checkpoint"], badly["epoch"]) == (4, 4, 1)
    told = f"node node2 cannot store checkpoints in {storage}/run (cannot find {storage}/run"
    assert told in badly["error"]
    assert "Use a storage that all nodes see: RunConfig(storage_path=...)" in badly["error"]


def test_a_full_disk_of_a_node_fails_the_report_and_names_the_node_and_the_path(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines"), 3) as nodes:
        # The third one has no room for what the nodes need, the second one for two checkpoints.
        for node, size in ((nodes[1], "20m"), (nodes[2], "1m")):
            node.run("mkdir", "-p", SCRATCH)
            node.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", SCRATCH)
        script, gate = bench.held_in(2, checkpoint_bytes=5_000_000)
        assert f"written to {SCRATCH}/holdfast-nodes-" in script.said("The node node3 cannot be")
        gate.open()
        script.succeeds()
    well, badly = sorted(results(script), key=lambda found: found["error"] is not None)
    assert (well["epoch"], well["checkpoint"]) == (4, 4)
    assert 2 <= badly["epoch"] == badly["checkpoint"] < 4
    assert len(warnings_of(script, "warning: The node node3 cannot be used")) == 1
    for told in ("node2", f"{SCRATCH}/holdfast-nodes-", "No space left on device"):
        assert told in badly["error"]
    assert bench.problems(tensorboard=True) == []
