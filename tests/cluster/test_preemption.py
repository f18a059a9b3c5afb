"""A node is taken away: its trials save, count as preempted, and resume elsewhere."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Collection
from typing import Any

import psutil
import pytest

from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nodes.slurm import SlurmCluster, wait_until
from tests.rig.nodes.slurm_rigs import jobs_of
from tests.rig.script import UserScript

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


@pytest.mark.nightly
def test_a_node_that_nobody_takes_away_is_used_again_and_its_trial_was_preempted(
    bench: Bench,
) -> None:
    bench.environ["HOLDFAST_LEAVES_IN_S"] = "1"
    script, gate = bench.held_in(3, **SAVES_WHEN_PREEMPTED)
    end_agent(script)
    told = script.said("Preempted: the worker process")
    assert "was ended with the node" in told
    assert "its announced time was over (SIGTERM)" in told
    lost = re.search(r"_0000(\d) failed", told)
    assert lost
    script.wait_for(f"begun {lost[1]} 2")  # on a new agent, because the other one is busy
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert bench.problems(tensorboard=True) == []


def first_job(slurm: SlurmCluster) -> tuple[str, str]:
    """Slurm's id of one that runs, and its node."""
    listed = slurm.run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i %N")
    job, node = listed.splitlines()[0].split()
    return job, node


@pytest.mark.server
def test_the_trials_of_a_job_that_is_cancelled_save_and_resume_elsewhere(
    bench: Bench, slurm: SlurmCluster
) -> None:
    with jobs_of(bench, slurm):
        assert_that_a_trial_saves_and_resumes(
            bench, lambda _: slurm.run("scancel", first_job(slurm)[0])
        )


@pytest.mark.server
@pytest.mark.nightly
def test_the_trials_of_a_job_save_before_its_time_limit(bench: Bench, slurm: SlurmCluster) -> None:
    """One minute is Slurm's shortest limit, of which the last quarter is announced."""
    with jobs_of(bench, slurm, nodes=1, time="00:01:00"):
        gate = bench.gate("any-3")
        script = bench.start(**SAVES_WHEN_PREEMPTED)
        script.wait_for("at 0 3")
        assert "its Slurm time limit" in script.said(" leaves in ")
        script.wait_for("preempted")
        assert slurm.run("squeue", "--noheader", "--states=RUNNING"), "it came after the limit"
        gate.open()
        script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    ran = sorted(note["iteration"] for note in bench.notes() if note["what"] == "ran")
    assert ran == [1, 1, 2, 2, 3, 3, 4, 4]
    assert bench.problems(tensorboard=True) == []


@pytest.mark.server
@pytest.mark.nightly
def test_a_trial_whose_node_is_taken_down_by_slurm_runs_again_elsewhere(
    bench: Bench, slurm: SlurmCluster
) -> None:
    with jobs_of(bench, slurm):
        script, gate = bench.held_in(3, checkpoint_every=9, max_failures=1)
        _, node = first_job(slurm)
        slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        script.said(f"node {node} is lost")
        gate.open()
        script.succeeds()
        wait_until(slurm.is_whole)  # the node comes back by itself
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert bench.problems(tensorboard=True) == []


def test_all_ranks_save_and_resume_when_one_of_their_nodes_is_taken_away(bench: Bench) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=3&cpus_per_node=1"
    gate = bench.gate("any-3")
    script = bench.start(ranks=2, rank_cpus=1, at_once=1, **SAVES_WHEN_PREEMPTED)
    script.wait_for("at 0 3")
    agents = {agent.pid for agent in script.processes("agent")}
    (second,) = [
        psutil.Process(worker.pid)
        for worker in script.processes("worker")
        if os.readlink(f"/proc/{worker.pid}/fd/1").endswith(".rank-1")
    ]
    end_agent(script, [one.pid for one in second.parents() if one.pid in agents])
    script.wait_for("preempted 0")  # rank 0, whose node stays
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    again = [note["iteration"] for note in bench.notes() if note["attempt"] == 2]
    assert again == [4, 4]  # it ran, and was acknowledged
    assert bench.problems(tensorboard=True) == []
