"""A population that is killed during a cloning, and resumes elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import checker
from tests.rig.bench import Bench, results, workbench
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, Path(__file__).parent / "population_script.py") as made:
        made.environ["HOLDFAST_STOP_GRACE_S"] = "30"
        yield made


def takeovers(root: Path) -> list[Any]:
    return [json.loads(line) for line in (root / "pbt_global.txt").read_text().splitlines()]


def test_a_takeover_that_was_cut_off_is_finished_on_another_machine(
    bench: Bench, moto: S3Server, proxy: Proxy
) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    late, further, end = bench.gate("at-0-3"), bench.gate("at-1-5"), bench.gate("end")
    script = bench.start()
    # The source has superseded its checkpoint when the other trial is cloned, and continues.
    script.wait_for("at 1 5")
    late.open()
    script.wait_for("told to end 0 3")
    bucket.wait_for_committed(7)
    script.kill()
    # The workers need not wait until their grace ends.
    further.open()
    end.open()
    assert script.left() == []
    second = bench.use(bucket, machine="second")
    restored = bench.restore().succeeds()
    clone, source = results(restored)
    assert (clone["error"], source["error"]) == ("", "")
    copy = bucket.download(bench.folder / "bucket")
    for root in (second, copy):
        assert checker.check(root, tensorboard=True) == []
        first, *_ = takeovers(root)
        assert first[2:5] == [3, 4, {"rate": 0.5}]
        assert (root / f"pbt_policy_{clone['metrics']['trial_id']}.txt").exists()
    lines = next(second.glob("*00000*/result.json")).read_text().splitlines()
    shown = [json.loads(line) for line in lines]
    assert [row["training_iteration"] for row in shown] == [1, 2, 3, 5]
    assert shown[3]["loss"] == pytest.approx(0.5**4 * first[5]["rate"])
    assert clone["metrics"]["rate"] == clone["config"]["rate"] == shown[-1]["config"]["rate"]
