"""A node is taken away: its trials save, count as preempted, and resume elsewhere."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from typing import Any

import pytest

from tests.rig.bench import Bench, epochs_of, results
from tests.rig.script import UserScript
from tests.rig.slurm import SlurmCluster
from tests.rig.slurm_runs import slurm_jobs
from tests.rig.ssh_runs import ssh_nodes

pytestmark = pytest.mark.process

# The trial saves only when it is preempted, and no failure is retried.
SAVES_WHEN_PREEMPTED: dict[str, Any] = {
    "checkpoint_every": 9,
    "saves_at_the_end": True,
    "preemption_grace_s": 60,
    "max_failures": 0,
}


def assert_that_a_trial_saves_and_resumes(
    bench: Bench, take_away: Callable[[UserScript], object]
) -> None:
    script, gate = bench.held_in(3, **SAVES_WHEN_PREEMPTED)
    take_away(script)
    script.wait_for("preempted")
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    ran = [note for note in bench.notes() if note["what"] == "ran"]
    (again,) = [note for note in ran if note["attempt"] > 1]
    assert (again["attempt"], again["iteration"]) == (2, 4)
    assert "leaves in" in script.stderr
    assert "Preempted" in script.stderr
    assert bench.problems(tensorboard=True) == []


def end_agent(script: UserScript, pids: Collection[int] = ()) -> None:
    """SIGTERM to the first agent, or to that among these processes."""
    agents = [one for one in script.processes("agent") if not pids or one.pid in pids]
    agents[0].signal(signal.SIGTERM)


def test_the_trials_of_an_agent_that_gets_sigterm_save_and_resume_elsewhere(bench: Bench) -> None:
    assert_that_a_trial_saves_and_resumes(bench, end_agent)


@pytest.mark.server
def test_the_trials_of_a_machine_that_ends_its_agent_save_and_resume_elsewhere(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines")) as nodes:
        assert_that_a_trial_saves_and_resumes(
            bench, lambda script: end_agent(script, nodes[0].pids())
        )


def first_job(slurm: SlurmCluster) -> tuple[str, str]:
    """Slurm's id of one that runs, and its node."""
    listed = slurm.run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i %N")
    job, node = listed.splitlines()[0].split()
    return job, node


@pytest.mark.server
def test_the_trials_of_a_job_that_is_cancelled_save_and_resume_elsewhere(
    bench: Bench, slurm: SlurmCluster
) -> None:
    with slurm_jobs(bench, slurm):
        assert_that_a_trial_saves_and_resumes(
            bench, lambda _: slurm.run("scancel", first_job(slurm)[0])
        )
