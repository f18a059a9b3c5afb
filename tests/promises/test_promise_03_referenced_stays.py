"""Promise 3. A superseded checkpoint is removed only when no record that a restore may start from,
local or remote, names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.rig import checker
from tests.rig.bench import Bench, epochs_of
from tests.rig.nightly import rest_nightly
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


def named_and_missing(root: Path) -> list[str]:
    found = checker.fold(root)
    return [
        problem
        for trial in found.trials.values()
        for problem in checker.checkpoints(root, trial, ended=False)
    ]


@pytest.mark.parametrize("epoch", rest_nightly(1, [3, 5]))
def test_the_local_journal_names_no_checkpoint_that_is_gone(bench: Bench, epoch: int) -> None:
    bench.options |= {"epochs": 8, "num_to_keep": 1}
    script = bench.start()
    script.wait_for(f"reported 0 {epoch}")
    script.kill_all()
    assert script.left() == []
    assert named_and_missing(bench.root) == []
    assert epochs_of(bench.restore().succeeds()) == [8, 8]
    assert bench.problems() == []


@pytest.mark.server
@pytest.mark.parametrize(
    "operation", rest_nightly(1, ["PUT /head.json", "POST delete", "PUT /.holdfast.json"])
)
def test_the_published_journal_names_no_checkpoint_that_is_gone_from_the_bucket(
    bench: Bench, moto: S3Server, proxy: Proxy, operation: str
) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    bench.options |= {"epochs": 8, "num_to_keep": 1}
    gate = bench.gate("any-5")
    script = bench.start()
    script.wait_for("at 0 5")
    bucket.wait_for_committed(4)
    method, ending = operation.split(" ")
    proxy.break_off_after(method, "" if ending == "delete" else ending)
    gate.open()
    proxy.wait_for_break()
    script.kill_all()
    assert script.left() == []
    proxy.mend()

    copy = bucket.download(bench.folder / "copy")
    head = json.loads((copy / "head.json").read_text())
    named = {segment["name"] for segment in head["segments"]}
    for segment in list((copy / "journal").iterdir()):
        if segment.name not in named:
            segment.unlink()
    gone = [problem for problem in named_and_missing(copy) if "not there" in problem]
    uncommitted = {
        f"{trial.dirname}/checkpoint_{index:06d}"
        for trial in checker.fold(copy).trials.values()
        for index in trial.checkpoints.keys() - trial.committed
    }
    assert [problem for problem in gone if problem.split(" ")[0] not in uncommitted] == []

    shutil.rmtree(bench.folder / "first")
    bench.use(bucket, machine="second")
    assert epochs_of(bench.restore().succeeds()) == [8, 8]
