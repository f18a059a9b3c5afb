"""The code in docs/storage.md that moves an experiment to a bucket works as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import tune
from tests.rig.runs.patient import healthy
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

PAGE = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()


@pytest.mark.process
def test_an_experiment_is_moved_to_a_bucket_by_the_lines_of_the_page(
    tmp_path: Path, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(moto, "experiments")
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    healthy(tmp_path / "results" / "digits", metric="loss", mode="min")
    (code,) = re.findall(r"^```python\n(import s3fs\n.*?)^```$", PAGE, re.M | re.S)
    moved = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "AWS_ENDPOINT_URL": moto.endpoint},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout.endswith(" bytes are there\n")
    here = tune.load(str(tmp_path / "results" / "digits"))
    scheme, mark, query = bucket.storage_path.partition("?")
    there = tune.load(f"{scheme}/digits{mark}{query}")
    assert [one.metrics for one in there] == [one.metrics for one in here]
    assert len(there) == 3
