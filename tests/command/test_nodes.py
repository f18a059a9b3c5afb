"""`holdfast nodes`, and what `holdfast show` says of nodes."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path

import pytest

from holdfast.experiment.folder.nodes_file import NodeBeat, NodesFile
from holdfast.scheduler.events import NodeLeaving, NodeLeft, Resumed
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.resources import NodeKind
from tests.command.commands import parsed, told
from tests.rig.runs.recorded import RecordedExperiment


def on_nodes(root: Path) -> RecordedExperiment:
    """A run on a cluster: a trial on node a runs, one on b failed, and b has left."""
    run = RecordedExperiment(root, offer=[NodeKind(name="gpu", most=4)], num_samples=3)
    run.joins("a", {"CPU": 2, "GPU": 1}, hostname="a.cluster", address="10.0.0.1")
    first = run.begin()
    run.begin()
    run.joins("b", {"CPU": 8}, hostname="gpu7", address="10.0.0.2")
    third = run.begin()
    run.report(first, {"loss": 1.0})
    run.fail(third)
    run.add(NodeLeft(node="b", cause="it sent no beat for 10 s"))
    run.write_files()
    return run


def test_show_names_the_node_of_each_trial_and_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_nodes(tmp_path / "run").close()
    out = told(capsys, "show", tmp_path / "run")
    assert re.search(r"^trial +status +node +iter ", out, re.M)
    assert re.search(r"^train_d2a66_00000 +interrupted +a +1 ", out, re.M)
    assert re.search(r"^train_d2a66_00002 +failed +b$", out, re.M)
    assert "d2a66_00002 failed on node b (host host) at train.py:7 in train: ValueError" in out
    first, _, third = parsed(capsys, "show", tmp_path / "run")["trials"]
    assert (first["node"], first["nodes"], third["node"]) == ("a", ["a"], "b")
    assert (third["error"]["node"], third["error"]["hostname"]) == ("b", "host")
    (row,) = csv.DictReader(io.StringIO(told(capsys, "export", "--rows", tmp_path / "run")))
    assert row["node_name"] == "a"


def test_nodes_says_what_is_held_where_and_why_a_node_has_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_nodes(tmp_path / "run")
    run.joins("b-2", {"CPU": 8, "memory": 8e9}, hostname="gpu7")
    run.add(NodeLeaving(node="a", seconds=30.0, why="its time limit"))
    run.close()
    now = time.time()
    beat = NodeBeat(node="b-2", at=now - 90, disk_free_bytes=120_000_000_000)
    assert NodesFile(run.layout).write([beat], "2 jobs wait in the queue")
    lock = ExperimentLock(run.layout.lock)
    try:
        lines = told(capsys, "nodes", tmp_path / "run").splitlines()
        found = parsed(capsys, "nodes", tmp_path / "run")
    finally:
        lock.release()
    assert lines[1] == "  1 of 4 nodes"
    assert lines.pop(2) == "  2 jobs wait in the queue"
    cells = [re.split(r"  +", line) for line in lines[2:6]]
    assert cells[0][:5] == ["NODE", "STATE", "HOLDS", "TRIALS", "JOINED"]
    assert cells[1][:4] == ["a", "leaving", "CPU 2/2, GPU 0/1", "2"]
    assert cells[1][-2:] == ["a.cluster", "10.0.0.1"]
    assert cells[2][:3] == ["b-2", "here", "CPU 0/8"]
    assert re.fullmatch(r"1m 3\ds ago", cells[2][-3])
    assert cells[2][-2:] == ["120.0 GB", "gpu7"]
    assert cells[3][:2] == ["b", "left"]
    assert lines[6] == "a leaves: its time limit"
    assert re.fullmatch(r"b has left .* ago: it sent no beat for 10 s", lines[7])
    assert len(lines) == 8
    names = [(node["name"], node["state"], node["trials"]) for node in found["nodes"]]
    trials = ["d2a66_00000", "d2a66_00001"]
    assert names == [("a", "leaving", trials), ("b-2", "here", []), ("b", "left", [])]
    assert found["nodes"][0]["held"] == {"CPU": 2}
    assert found["nodes"][1]["heard_at"] == beat.at
    assert (found["is_cluster"], found["most"]) == (True, 4)
    assert found["waiting"] == "2 jobs wait in the queue"


def test_a_run_that_was_killed_has_no_nodes_and_a_restore_begins_without_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_nodes(tmp_path / "run")
    out = told(capsys, "nodes", tmp_path / "run")
    assert "run: interrupted\n  0 of 4 nodes\n" in out
    assert "a has left" not in out
    assert "\nb has left " in out
    run.add(Resumed(epoch=2, capacity={}, offer=[NodeKind(name="gpu", most=1)]))
    run.joins("a-2", {"CPU": 2})
    run.close()
    lock = ExperimentLock(run.layout.lock)
    try:
        out = told(capsys, "nodes", tmp_path / "run")
        every = told(capsys, "nodes", "--all", tmp_path / "run")
    finally:
        lock.release()
    assert "\n  1 of 1 node\n" in out
    assert out.endswith("... 2 more have left (--all shows them)\n")
    assert "\nb has left " in every
    assert "more have left" not in every


def test_on_one_machine_there_are_no_nodes(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "nodes", store / "cut")
    assert out.endswith("  all its trials run on one machine: it has no nodes\n")
    found = parsed(capsys, "nodes", store / "cut")
    assert (found["is_cluster"], found["most"], found["nodes"]) == (False, None, [])
