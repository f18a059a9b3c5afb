"""The same script on the nodes of a real Slurm: nothing in it names them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench, epochs_of
from tests.rig.nodes.slurm import SlurmCluster, wait_until
from tests.rig.nodes.slurm_rigs import allocated, jobs_of, occupy

pytestmark = [pytest.mark.process, pytest.mark.server]


@pytest.fixture
def jobs(bench: Bench, slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """The script submits two jobs with one CPU each. None is in the queue at the end."""
    with jobs_of(bench, slurm) as cluster:
        yield cluster


def test_a_script_that_is_not_edited_runs_its_trials_in_jobs(
    bench: Bench, jobs: SlurmCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def told_by(command: str) -> str:
        assert main([command, str(bench.root)]) != 0
        return capsys.readouterr().err

    occupy(jobs)
    gate = bench.gate("any-2")
    script = bench.start(checkpoint_every=9, prints=True)
    script.said(waits := "2 of 2 nodes wait in Slurm's queue (Resources)")
    wait_until(lambda: f"no record yet, as it waits for nodes: {waits}" in told_by("nodes"))
    assert waits in told_by("show")
    jobs.run("scancel", "--name=busy")
    for trial in range(2):
        script.wait_for(f"at {trial} 2")
    listed = jobs.run("squeue", "--noheader", "--states=RUNNING", "--format=%j").split()
    assert [name.partition("-")[0] for name in listed] == ["holdfast", "holdfast"]
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert bench.problems(tensorboard=True) == []
    assert [*(bench.folder / "shared").iterdir()] == []


@pytest.mark.nightly
def test_a_job_that_begins_after_the_script_is_gone_ends_by_itself(
    bench: Bench, jobs: SlurmCluster
) -> None:
    occupy(jobs)
    script = bench.start(checkpoint_every=9)
    script.said("2 of 2 nodes wait in Slurm's queue (Resources)")
    script.kill()
    assert script.left() == []
    jobs.run("scancel", "--name=busy")
    wait_until(lambda: not jobs.run("squeue", "--noheader"))
    (folder,) = (bench.folder / "shared").iterdir()
    for output in folder.glob("*.out"):
        assert "cannot be reached within 3 s" in output.read_text()
    assert len([*folder.glob("*.out")]) == 2
    assert [*folder.glob("*.invitation")] == []


def test_auto_uses_the_nodes_of_the_allocation(bench: Bench, slurm: SlurmCluster) -> None:
    with allocated(slurm, "--nodes=2", "--exclusive") as rig:
        bench.environ |= rig.environ
        bench.environ["HOLDFAST_CLUSTER"] = "auto"
        script, gate = bench.held_in(2, checkpoint_every=9)
        assert len(script.processes("agent")) >= 2
        gate.open()
        script.succeeds()
        assert epochs_of(script) == [4, 4]
        assert bench.problems(tensorboard=True) == []


@pytest.mark.nightly
def test_agents_in_an_allocation_end_with_the_script(bench: Bench, slurm: SlurmCluster) -> None:
    with allocated(slurm, "--nodes=2", "--exclusive") as rig:
        bench.environ |= rig.environ
        bench.environ["HOLDFAST_CLUSTER"] = "auto"
        script, _ = bench.held_in(2, checkpoint_every=9)
        script.kill()
        assert script.left() == []
