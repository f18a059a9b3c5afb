"""Storage fails for good while trials run on nodes: their files stay there, and a restore uses
them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench, epochs_of, results
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]
NIGHTLY = pytest.mark.nightly


def by_doctor(bench: Bench) -> None:
    assert main(["doctor", "sync", bench.options["storage"].replace("?", "/run?")]) == 0


def by_restore(bench: Bench) -> None:
    script = bench.restore().succeeds()
    assert epochs_of(script) == [4, 4]
    assert [found["checkpoint"] for found in results(script)] == [4, 4]


@pytest.mark.parametrize("finishes", [by_doctor, pytest.param(by_restore, marks=NIGHTLY)])
def test_what_nodes_could_not_upload_is_kept_there_and_uploaded_later(
    bench: Bench,
    moto: S3Server,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    finishes: Callable[[Bench], None],
) -> None:
    bucket = Bucket(moto, tmp_path.name, proxy)
    root = bench.use(bucket, machine="first")
    (scratch := tmp_path / "scratch").mkdir()
    bench.environ["HOLDFAST_CLUSTER"] = f"local://?agents=1&cpus_per_node=2&scratch={scratch}"
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "2"
    options = {"prints": True, "artifacts": True, "sync_artifacts": True}
    script, gate = bench.held_in(2, **options)
    bucket.wait_for_committed(2)
    proxy.break_off()
    gate.open()
    assert script.ends() != 0
    script.finish_reading()

    listed = set(re.findall(r"\(kept on node \S+ in (\S+)\)", script.stderr))
    assert {str(path) for path in scratch.glob("holdfast-kept-*/*")} == listed, script.stderr
    assert [path.name for path in scratch.iterdir()] == [Path(min(listed)).parent.name]
    assert f"What is on this machine is kept in {root}." in script.stderr
    for folder in map(Path, listed):
        assert folder.stat().st_mode & 0o777 == 0o700
        trials = list(folder.glob("[!.]*"))  # and no code that was delivered
        assert {trial.name[:6] for trial in trials} == {"train_"}
        for trial in trials:
            assert (trial / "checkpoint_000003" / ".holdfast.json").exists()
            shutil.copytree(trial, root / trial.name, dirs_exist_ok=True)

    proxy.mend()
    ran = len(bench.notes())
    for name, value in bench.environ.items():
        monkeypatch.setenv(name, value)
    finishes(bench)
    assert len(bench.notes()) == ran
    copy = bucket.download(tmp_path / "bucket")
    assert bench.problems(copy, tensorboard=True) == []
    for trial in copy.glob("train_*"):
        assert (trial / "checkpoint_000003" / ".holdfast.json").exists()
        assert (trial / "artifact.txt").read_text() == "epoch 4"
        assert "epoch 4 of attempt 1" in (trial / "stdout").read_text()
