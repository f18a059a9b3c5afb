"""What dies with a node, and what does not: the rows of the table in docs/cluster.md."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.rig import ROOT, checker
from tests.rig.bench import Bench, epochs_of
from tests.rig.faults import quick_beats
from tests.rig.faults.deaths import HOOK
from tests.rig.nodes.machines import Machine
from tests.rig.nodes.slurm import SlurmCluster
from tests.rig.nodes.slurm_rigs import allocated
from tests.rig.nodes.ssh_runs import ssh_nodes
from tests.rig.script import Process, UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]

BEAT_S = 5.0


@pytest.fixture
def bucket(moto: S3Server, bench: Bench, proxy: Proxy) -> Bucket:
    made = Bucket(moto, bench.folder.name, proxy)
    bench.use(made, machine="first")
    return made


def ran(bench: Bench, trial: int, attempt: int) -> list[int]:
    """The epochs that this attempt ran."""
    return [
        note["iteration"]
        for note in bench.notes()
        if note["what"] == "ran"
        and note["attempt"] == attempt
        and note["trial"].endswith(f"_{trial:05d}")
    ]


def agent_of(script: UserScript, trial: int) -> Process:
    """The agent on whose node this trial runs."""
    agents = {agent.pid: agent for agent in script.processes("agent")}
    for worker in script.processes("worker"):
        process = psutil.Process(worker.pid)
        if f"_{trial:05d}_" in process.cwd():
            (above,) = [one.pid for one in process.parents() if one.pid in agents]
            return agents[above]
    raise AssertionError(f"no worker runs trial {trial}")


def problems(bench: Bench, root: Path | None = None) -> list[str]:
    """Those of the checker, but that a checkpoint which is not in storage goes with its node."""
    found = bench.problems(root, tensorboard=True)
    return [text for text in found if "again although it was acknowledged with its" not in text]


@pytest.mark.parametrize(
    "is_complete",
    [
        pytest.param(True, id="complete"),
        pytest.param(False, id="incomplete", marks=pytest.mark.nightly),
    ],
)
def test_a_commit_under_way_on_the_lost_node_counts_if_storage_has_it_all(
    bench: Bench, bucket: Bucket, proxy: Proxy, is_complete: bool
) -> None:
    manifest = r"_00000_.*/checkpoint_000002/\.holdfast\.json$"
    held = proxy.hold("PUT", manifest, is_performed=is_complete)
    script, gate = bench.held_in(4, max_failures=1)
    held.wait()
    agent_of(script, 0).kill()
    script.said("is lost")
    held.let_go()
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert ran(bench, 0, attempt=2) == ([4] if is_complete else [3, 4])
    start = "checkpoint_000002 (iteration 3)" if is_complete else "checkpoint_000001 (iteration 2)"
    assert f" from {start}" in script.stderr
    copy = bucket.download(bench.folder / "bucket")
    assert problems(bench, copy) == []


def test_a_node_takes_no_file_of_a_trial_with_it_that_has_ended(
    bench: Bench, bucket: Bucket, proxy: Proxy
) -> None:
    gates = [bench.gate(f"{trial}-4") for trial in (0, 1)]
    script = bench.start(
        sync_period=3600, artifacts=True, sync_artifacts=True, prints=True, checkpoint_every=9
    )
    script.wait_for("at 0 4")
    agent = agent_of(script, 0)
    gates[0].open()
    for name in ("stdout", "artifact.txt"):
        proxy.wait_for("PUT", f"/{name}")  # the other trial has not ended
    agent.kill()
    script.said("is lost")
    gates[1].open()
    script.succeeds()
    copy = bucket.download(bench.folder / "bucket")
    (folder,) = copy.glob("*_00000_*")
    assert (folder / "artifact.txt").read_text() == "epoch 4"
    assert "epoch 4 of attempt 1" in (folder / "stdout").read_text()
    assert bench.problems(copy, tensorboard=True) == []


def test_a_node_that_is_lost_before_it_has_sent_the_files_of_an_ended_trial_is_a_loss(
    bench: Bench, bucket: Bucket, proxy: Proxy
) -> None:
    held = proxy.hold("PUT", r"_00000_.*/artifact\.txt$", is_performed=False)
    gates = [bench.gate(f"{trial}-4") for trial in (0, 1)]
    script = bench.start(sync_period=3600, artifacts=True, sync_artifacts=True, checkpoint_every=9)
    script.wait_for("at 0 4")
    agent = agent_of(script, 0)
    gates[0].open()
    held.wait()
    agent.kill()
    told = script.said("was lost before it had sent the newest output and artifacts of trial ")
    assert told.rstrip().endswith("_00000")
    gates[1].open()
    held.let_go()
    script.succeeds()


FULL = """
import errno, os, sys
from holdfast import tune

def train(config):
    if tune.get_context().get_attempt() == 1:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    tune.report({"epoch": 1})

run = tune.RunConfig(
    name="run", storage_path=sys.argv[1], failure_config=tune.FailureConfig(max_failures=1)
)
(result,) = tune.Tuner(tune.with_resources(train, {"cpu": 1}), run_config=run).fit()
assert result.error is None
"""


def test_a_trial_that_met_a_full_disk_is_not_tried_again_on_that_node(bench: Bench) -> None:
    bench.run(bench.write(FULL), str(bench.storage)).succeeds()
    records = checker.records(bench.root)
    first, second = (fields["nodes"] for name, _, fields in records if name == "Started")
    assert first != second


@pytest.mark.parametrize("over_pipe", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_script_that_was_suspended_charges_no_trial_with_the_loss_of_its_nodes(
    bench: Bench, over_pipe: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench.environ |= quick_beats.environ_for(heartbeat_s=1.0, lease_s=3.0, margin_s=1.0)
    bench.environ["PYTHONPATH"] = f"{HOOK}{os.pathsep}{ROOT}"
    with ExitStack() as stack:
        if over_pipe:
            stack.enter_context(ssh_nodes(bench, tmp_path_factory.mktemp("machines")))
        script, gate = bench.held_in(3, max_failures=0)
        agents = script.processes("agent")
        script.suspend()
        assert all(agent.ends() for agent in agents)
        script.signal(signal.SIGCONT)
        told = script.said("is lost: the script was suspended for")
        assert "a node waits 3 s for it" in told
        gate.open()
        script.succeeds()
    assert "leaves in 0 s" not in script.stderr
    assert "Preempted: the worker process" in script.stderr
    assert epochs_of(script) == [4, 4]
    assert bench.problems(tensorboard=True) == []


@pytest.mark.nightly
def test_a_trial_that_had_not_started_on_a_node_that_leaves_starts_on_another(
    bench: Bench, bucket: Bucket, proxy: Proxy
) -> None:
    bench.environ["HOLDFAST_LEAVES_IN_S"] = "1"
    script, gate = bench.held_in(3, max_failures=1)
    bucket.wait_for_committed(4)
    held = proxy.hold("GET", r"_00000_.*/checkpoint_000001/weights$", is_performed=False)
    before = {agent.pid for agent in script.processes("agent")}
    agent_of(script, 0).kill()
    held.wait()  # a new agent fetches the checkpoint that the trial resumes from
    (new,) = [agent for agent in script.processes("agent") if agent.pid not in before]
    new.signal(signal.SIGTERM)
    told = script.said("Preempted: its machine will be taken away, and it had not started there")
    assert "from checkpoint_000001 (iteration 2)" in told
    held.let_go()
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    assert [ran(bench, 0, attempt) for attempt in (1, 2, 3)] == [[1, 2, 3], [], [3, 4]]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_when_one_node_of_a_gang_is_lost_all_ranks_start_again_renumbered(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines"), 3) as nodes:
        gate = bench.gate("any-3")
        script = bench.start(ranks=2, rank_cpus=1, at_once=1, max_failures=1)
        script.wait_for("at 0 3")
        places = {rank: script.wait_for(f"rank {rank} 1").split()[-1] for rank in (0, 1)}
        nodes[nodes.names.index(places[0])].kill_all()
        assert places[0] in script.said("is lost")
        gate.open()
        after = {rank: script.wait_for(f"rank {rank} 2").split()[-1] for rank in (0, 1)}
        script.succeeds()
    assert set(after.values()) == {*nodes.names} - {places[0]}
    assert epochs_of(script) == [4, 4]
    assert ran(bench, 0, attempt=2)[-2:] == [3, 4]
    assert problems(bench) == []


@pytest.mark.parametrize(
    ("cut", "mend"),
    [
        pytest.param(Machine.power_off, Machine.boot, id="off and on"),
        pytest.param(Machine.drop, Machine.heal, id="cut off", marks=pytest.mark.nightly),
    ],
)
def test_a_trial_is_queued_within_two_beats_and_a_node_that_comes_back_is_used_again(
    bench: Bench,
    tmp_path_factory: pytest.TempPathFactory,
    cut: Callable[[Machine], None],
    mend: Callable[[Machine], None],
) -> None:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines")) as nodes:
        script, gate = bench.held_in(3, checkpoint_every=9, max_failures=1)
        cut(nodes[0])
        silence = re.search(r"not heard for ([\d.]+) s", script.said("node1 is lost"))
        assert silence
        assert float(silence[1]) <= 2 * BEAT_S + 1
        mend(nodes[0])
        lost = re.search(r"_0000(\d) failed on", script.said("failed on node node1"))
        assert lost
        script.wait_for(f"begun {lost[1]} 2")  # there, because the other machine is busy
        assert [worker for worker in script.processes("worker") if worker.pid in nodes[0].pids()]
        gate.open()
        script.succeeds()
        nodes.wait_until_idle()
    assert "node1-2" in script.stderr
    assert epochs_of(script) == [4, 4]
    assert bench.problems(tensorboard=True) == []


@pytest.mark.nightly
def test_a_restore_elsewhere_is_not_disturbed_by_agents_that_are_still_alive(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines")) as nodes:
        script, gate = bench.held_in(3)
        # As if the controller's machine were off: nothing of its end reaches the nodes.
        for machine in nodes.all:
            machine.drop()
        script.kill()
        # They live for a lease at most. It is made longer, so that the whole restore is within.
        agents = [one for one in script.processes("agent") if not one.ends(0)]
        for agent in agents:
            agent.signal(signal.SIGSTOP)
        bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=2&cpus_per_node=1"
        again = bench.restore()
        gate.open()  # for the old workers, too
        again.succeeds()
        workers = [one for one in script.processes("worker") if not one.ends(0)]
        assert len(workers) == 2
        for agent in agents:
            agent.signal(signal.SIGCONT)
        assert all(process.ends() for process in (*workers, *agents))
    assert epochs_of(again) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_run_ends_when_the_allocation_of_its_nodes_ends(
    bench: Bench, slurm: SlurmCluster
) -> None:
    with allocated(slurm, "--nodes=2", "--exclusive") as rig:
        bench.environ |= rig.environ
        bench.environ["HOLDFAST_CLUSTER"] = "auto"
        # One node may be killed before the other, and then the trials are lost twice.
        script, _ = bench.held_in(2, checkpoint_every=9, max_failures=9)
        slurm.run("scancel", rig.allocation.job)
        told = "no node is left, and the cluster supplies no more: Slurm: the allocation"
        assert f"{told} {rig.allocation.job} was cancelled" in script.said(told)
        assert script.ends() == 1
        assert script.left() == []
