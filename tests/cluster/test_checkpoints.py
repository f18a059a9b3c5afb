"""Checkpoints of trials on nodes: they go straight to storage, and no loss of a node loses one."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from holdfast.cli import main
from tests.rig import checker
from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nodes.training import TRAINING, rows_of
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process

MODES = Path(__file__).with_name("upload_modes_script.py")
POPULATION = Path(__file__).parent.parent / "restore" / "population_script.py"


@pytest.fixture
def bucket(moto: S3Server, bench: Bench, proxy: Proxy) -> Bucket:
    made = Bucket(moto, bench.folder.name, proxy)
    bench.use(made, machine="first")
    return made


def test_checkpoints_of_nodes_are_in_storage_at_the_end(bench: Bench) -> None:
    script = bench.start(num_to_keep=2).succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["checkpoint"] for found in results(script)] == [4, 4]
    assert bench.problems(tensorboard=True) == []


@pytest.mark.nightly
@pytest.mark.server
def test_a_bucket_holds_the_same_tree_as_without_nodes(bench: Bench, bucket: Bucket) -> None:
    script = bench.start(num_to_keep=2, artifacts=True, sync_artifacts=True, prints=True)
    script.succeeds()
    copy = bucket.download(bench.folder / "bucket")
    trial = next(copy.glob("train_*_00000_*"))
    inside = {path.name for path in trial.iterdir()}
    assert {"result.json", "progress.csv", "params.json", "stdout", "stderr"} <= inside
    assert {"checkpoint_000002", "checkpoint_000003", "artifact.txt"} <= inside
    assert "checkpoint_000000" not in inside
    assert "epoch 4 of attempt 1" in (trial / "stdout").read_text()
    assert not bucket.named(".epochs/seen-")
    assert (copy / "nodes.json").exists()
    assert bench.problems(copy, tensorboard=True) == []


@pytest.mark.server
def test_a_trial_of_a_lost_node_resumes_from_its_checkpoint_in_storage(
    bench: Bench, bucket: Bucket
) -> None:
    options = {"max_failures": 1, "prints": True, "artifacts": True, "sync_artifacts": True}
    script, gate = bench.held_in(3, **options)
    bucket.wait_for_committed(4)
    agent, _ = script.processes("agent")
    agent.kill()
    script.said("is lost")
    gate.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    again = [note["iteration"] for note in bench.notes() if note["attempt"] == 2]
    assert min(again) == 3
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


@pytest.mark.server
def test_a_killed_run_on_nodes_is_restored_on_another_machine(
    bench: Bench, bucket: Bucket
) -> None:
    script, gate = bench.held_in(3, prints=True)
    bucket.wait_for_committed(4)
    script.dies()
    gate.open()
    bench.use(bucket, machine="second")
    again = bench.restore().succeeds()
    assert epochs_of(again) == [4, 4]
    ran = [note["iteration"] for note in bench.notes() if note["what"] == "ran"]
    assert sorted(ran) == [1, 1, 2, 2, 3, 3, 3, 3, 4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_ranks_on_two_nodes_save_one_checkpoint_and_resume_from_it(bench: Bench) -> None:
    script = bench.start(ranks=2, rank_cpus=1, fail=[[0, 3]], max_failures=1).succeeds()
    assert epochs_of(script) == [4, 4]
    for trial in bench.root.glob("*_0000?_*"):
        inside = {path.name for path in (trial / "checkpoint_000003").iterdir()}
        assert {"epoch.json", "weights", "weights-1", ".holdfast.json"} <= inside
    again = [note["iteration"] for note in bench.notes() if note["attempt"] == 2]
    assert min(again) == 3
    assert bench.problems(tensorboard=True) == []


def test_a_checkpoint_is_where_its_upload_mode_says(bench: Bench) -> None:
    script = bench.run(MODES, str(bench.storage)).succeeds()
    script.finish_reading()
    found = json.loads(script.stdout.splitlines()[0])
    assert found["SYNC"] == [1, "checkpoint_000002"]
    # It has resumed on its node, which has taken its checkpoints with it.
    iterations, why = found["NO_UPLOAD"]
    assert iterations == 1
    assert "3 of its checkpoints never reached storage (NO_UPLOAD" in why
    assert "Reported with NO_UPLOAD: 3 checkpoints of 1 trial on " in script.stderr
    assert not list(bench.storage.glob("modes/*NO_UPLOAD*/checkpoint_*"))
    assert "NO_UPLOAD keeps a checkpoint on its node, but the parts of this one" in script.stdout
    assert main(["doctor", str(bench.storage / "modes")]) == 0


def test_a_clone_starts_on_its_node_from_a_checkpoint_of_another(bench: Bench) -> None:
    bench.script = POPULATION
    late, further = bench.gate("at-0-3"), bench.gate("at-1-5")
    script = bench.start()
    script.wait_for("at 1 5")
    late.open()
    script.wait_for("at 0 5")  # the clone, which begins after epoch 4 of the other trial
    further.open()
    script.succeeds()
    assert "uses its own instead" not in script.stderr
    lines = (bench.root / "pbt_global.txt").read_text().splitlines()
    first, *_ = [json.loads(line) for line in lines]
    assert first[2:5] == [3, 4, {"rate": 0.5}]
    assert [found["error"] for found in results(script)] == ["", ""]
    assert checker.check(bench.root, tensorboard=True) == []


@pytest.mark.server
def test_a_node_lost_between_the_shares_of_a_checkpoint_leaves_the_one_before(
    bench: Bench, bucket: Bucket, proxy: Proxy
) -> None:
    bench.script = TRAINING
    bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=2&cpus_per_node=2"
    second, third = bench.gate("step-2"), bench.gate("step-3")
    script = bench.start(workers=4, rows=24, batch=3, epochs=2, max_failures=1)
    bucket.wait_for_committed(1)
    held = proxy.hold("PUT", "/checkpoint_000001/of-rank-3$", is_performed=False)
    second.open()
    held.wait()
    proxy.wait_for("PUT", "/checkpoint_000001/of-rank-0")
    (last,) = [note["pid"] for note in bench.notes() if note["rank"] == 3]
    above = {process.pid for process in psutil.Process(last).parents()}
    (agent,) = [process for process in script.processes("agent") if process.pid in above]
    assert bucket.named("/checkpoint_000001/of-rank-0")
    assert not bucket.named("/checkpoint_000001/.holdfast.json")
    before = len(proxy.answered)
    agent.kill()
    script.said("is lost")
    held.let_go()
    third.open()
    script.succeeds()
    assert " from checkpoint_000000 (iteration 1)" in script.stderr
    resumed = [note for note in bench.notes() if note["attempt"] == 2]
    assert {(note["step"], len(note["files"])) for note in resumed} == {(1, 4)}
    # The node that is left has a share of it, and the new one has nothing.
    got = [path for method, path in proxy.answered[before:] if method == "GET"]
    names = [*(f"of-rank-{rank}" for rank in range(4)), "common.json"]
    for name in names:
        assert sum(path.endswith(f"/checkpoint_000000/{name}") for path in got) == 2
    put = [path.rpartition("/")[::2] for method, path in proxy.answered if method == "PUT"]
    saved = [name for folder, name in put if folder.endswith("/checkpoint_000004")]
    assert sorted(saved[:-1]) == sorted(names)
    assert saved[-1] == ".holdfast.json"
    copy = bucket.download(bench.folder / "bucket")
    (path,) = copy.glob("*/checkpoint_000004/common.json")
    common, row = json.loads(path.read_text()), rows_of(copy)[-1]
    assert (common["step"], common["rows"]) == (row["step"], row["ranks"]["3"]["rows"])
    assert bench.problems(copy, tensorboard=True) == []
