"""The same script on several nodes: trials run there, and the records are complete here."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nodes.slurm import wait_until

pytestmark = pytest.mark.process

TWO_FITS = Path(__file__).with_name("two_fits_script.py")


def test_a_script_that_is_not_edited_runs_its_trials_on_nodes(bench: Bench) -> None:
    script = bench.start(samples=2, checkpoint_every=9, prints=True).succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4, 4, 4]
    assert "epoch 4 of attempt 1" in script.stdout + script.stderr
    assert bench.problems(tensorboard=True) == []


def test_trials_run_on_different_nodes_at_the_same_time(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    script, gate = bench.held_in(2, checkpoint_every=9)
    roles = {"agent": 2, "warm": 2, "worker": 2}
    # A child that was just forked has its parent's name for a moment.
    wait_until(lambda: {role: len(script.processes(role)) for role in roles} == roles)
    listed = nodes_told(bench, capsys)
    assert (listed["state"], listed["most"]) == ("live", 2)
    assert [(node["state"], node["held"]) for node in listed["nodes"]] == [
        ("here", {"CPU": 1})
    ] * 2
    trials = {trial: node["name"] for node in listed["nodes"] for trial in node["trials"]}
    gate.open()
    script.succeeds()
    assert script.left() == []
    first, second = listed["nodes"]
    at_the_end = nodes_told(bench, capsys)["nodes"]
    assert [node["cause"] for node in at_the_end] == ["its run has ended"] * 2
    # The file is written once the first node has joined, and then every five seconds.
    assert any(node["heard_at"] is not None for node in at_the_end)
    assert main(["show", str(bench.root), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["trials"]
    assert {trial["trial_id"]: trial["node"] for trial in shown} == trials
    assert {first["name"], second["name"]} == set(trials.values())


def nodes_told(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["nodes", str(bench.root), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_cluster_without_a_node_is_an_error_that_says_all_in_few_lines(bench: Bench) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = f"local://?agents=1&python={sys.executable}+-I+-S"
    script = bench.start()
    assert script.ends(30) != 0
    script.finish_reading()
    _, told = script.stderr.split("Traceback")
    assert "NoNodes: No agent could be started.\nagent 1: " in told
    assert "No module named 'holdfast'" in told
    assert "name the Python that has it (python=...)" in told
    assert "holdfast/experiment" not in told, "frames of holdfast"
    assert script.left() == []


@pytest.mark.nightly
def test_two_runs_of_one_script_share_the_gpus_of_their_nodes(bench: Bench) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=2"
    bench.environ["CUDA_VISIBLE_DEVICES"] = "gpu-a,gpu-b"
    first, second = bench.gate("first"), bench.gate("second")
    script = bench.run(TWO_FITS, str(bench.storage))
    for gpu in ("gpu-a", "gpu-b"):
        script.wait_for(f"has {gpu} first")
    second.open()
    script.said("another fit() of this script also runs on node")
    script.said("which another fit() in this process holds")
    assert [note["run"] for note in bench.notes()] == ["first", "first"]
    first.open()
    script.succeeds()
    script.finish_reading()
    assert "first ['gpu-a', 'gpu-b']" in script.stdout
    assert [note["run"] for note in bench.notes()] == ["first", "first", "second", "second"]


@pytest.mark.nightly
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can make namespaces"
)
def test_trials_run_behind_a_prefix_that_makes_a_container(bench: Bench) -> None:
    """Its own mounts and process ids, as Apptainer makes them."""
    prefix = "unshare+--mount+--pid+--fork+--kill-child+--mount-proc"
    where = f"local://?agents=1&cpus_per_node=1&python={prefix}+{sys.executable}"
    bench.environ["HOLDFAST_CLUSTER"] = where
    script = bench.start(checkpoint_every=9).succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_nothing_is_left_on_a_node_when_the_script_is_killed(bench: Bench) -> None:
    script, _ = bench.held_in(2, checkpoint_every=9)
    script.kill()
    assert script.left() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel continues it")
def test_a_stopped_agent_ends_with_the_script_that_is_killed(bench: Bench) -> None:
    script, _ = bench.held_in(2, checkpoint_every=9)
    for agent in script.processes("agent"):
        agent.signal(signal.SIGSTOP)
    script.kill()
    assert script.left() == []


def test_a_trial_whose_agent_is_killed_runs_again_on_another_node(bench: Bench) -> None:
    script, gate = bench.held_in(3, checkpoint_every=9, max_failures=1)
    agent, _ = script.processes("agent")
    agent.kill()
    script.said("is lost")
    gate.open()
    script.succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert bench.problems(tensorboard=True) == []


def test_the_script_unpickles_nothing_that_comes_from_nodes(bench: Bench) -> None:
    bench.script = Path(__file__).parent / "audit_script.py"
    script = bench.run(bench.script, str(bench.storage))
    assert "pathlib PosixPath" in script.wait_for("unpickled"), "the hook works, and was silent"
    script.succeeds()
    assert "an error whose parts" in script.stderr


def test_trials_whose_workers_were_lost_on_their_node_need_retries_and_no_other_code(
    bench: Bench,
) -> None:
    script, gate = bench.held_in(2, checkpoint_every=9)
    for worker in script.processes("worker"):
        worker.kill()
    gate.open()
    assert script.ends() == 0
    script.finish_reading()
    assert "To retry the failed trials: " in script.stderr
    assert "FailureConfig(max_failures=3) in the RunConfig retries what is lost" in script.stderr
    assert "correct the code" not in script.stderr


def test_an_agent_that_is_slow_to_start_is_told_of_the_option(bench: Bench) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=1&start_s=1&python=sh+-c+'sleep+600'"
    script = bench.start()
    assert script.ends() == 1
    script.finish_reading()
    assert "no agent has started within 1 s. If it is only slow, allow more: start_s=" in (
        script.stderr
    )
    assert script.left() == []
