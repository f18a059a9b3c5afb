"""An experiment in a bucket: the tree of the guides, restored where nothing else is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.rig import checker
from tests.rig.bench import Bench, copy_of_live, epochs_of, results
from tests.rig.nightly import rest_nightly
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server, make_bucket

pytestmark = [pytest.mark.process, pytest.mark.server]

SECRET = "s3cr3t-0f-th3-us3r"


@pytest.fixture
def bucket(moto: S3Server, bench: Bench, proxy: Proxy) -> Bucket:
    made = Bucket(moto, bench.folder.name, proxy)
    bench.use(made, machine="first")
    return made


def test_the_bucket_holds_the_tree_that_the_guides_draw(bench: Bench, bucket: Bucket) -> None:
    script = bench.start(artifacts=True, num_to_keep=2).succeeds()
    assert [found["checkpoint"] for found in results(script)] == [4, 4]
    assert script.left() == []
    copy = bucket.download(bench.folder / "bucket")
    names = {path.name for path in copy.iterdir()}
    assert {"tuner.pkl", "journal"} < names
    assert [name for name in names if name.startswith("experiment_state-")]
    assert [name for name in names if name.startswith("basic-variant-state-")]
    trial = next(copy.glob("train_*_00000_*"))
    inside = {path.name for path in trial.iterdir()}
    assert {"result.json", "progress.csv", "params.json", "stdout", "stderr"} <= inside
    assert {"checkpoint_000002", "checkpoint_000003"} <= inside
    assert "checkpoint_000000" not in inside  # num_to_keep holds in the bucket too
    assert "artifact.txt" not in inside
    assert bench.problems(copy, tensorboard=True) == []
    assert bench.problems(bench.folder / "first" / "run", tensorboard=True) == []


def test_an_experiment_is_restored_from_the_bucket_on_an_empty_machine(
    bench: Bench, bucket: Bucket
) -> None:
    script, gate = bench.held_in(3, num_to_keep=1)
    bucket.wait_for_committed(4)
    script.dies()
    gate.open()
    second = bench.use(bucket, machine="second")
    restored = bench.restore(num_to_keep=1).succeeds()
    assert epochs_of(restored) == [4, 4]
    assert [found["checkpoint"] for found in results(restored)] == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert checker.check(copy, tensorboard=True) == []
    assert checker.check(second, tensorboard=True) == []


def test_a_restore_on_the_same_machine_uploads_what_was_cut_off(
    bench: Bench, bucket: Bucket
) -> None:
    bench.killed_in(3, sync_period=3600)
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_a_copy_of_a_folder_that_is_run_is_refused_and_the_run_continues(
    bench: Bench, bucket: Bucket
) -> None:
    first, gate = bench.held_in(2)
    bucket.wait_for_committed(1)
    copy_of_live(bench.folder / "first", bench.folder / "copy")
    claims = bucket.named("/.epochs/")
    bench.use(bucket, machine="copy")
    copy = bench.restore()
    assert copy.ends() == 1
    copy.finish_reading()
    assert f"this folder is a copy of {bench.folder / 'first' / 'run'}" in copy.stderr
    assert bucket.named("/.epochs/") == claims
    gate.open()
    first.succeeds()
    assert epochs_of(first) == [4, 4]


def test_the_older_incarnation_is_refused_once_another_machine_has_restored(
    bench: Bench, bucket: Bucket
) -> None:
    older, gate = bench.held_in(3)
    bucket.wait_for_committed(4)
    frozen = older.processes()
    for process in frozen:
        process.signal(signal.SIGSTOP)
    bench.use(bucket, machine="second")
    newer = bench.restore()
    newer.wait_for("begun 0 2")
    newer.wait_for("begun 1 2")
    gate.open()
    newer.succeeds()
    for process in frozen:
        process.signal(signal.SIGCONT)
    assert older.ends() == 1
    older.finish_reading()
    assert "a newer restore of this experiment has taken" in older.stderr
    assert older.left() == []
    assert epochs_of(newer) == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert checker.check(copy, tensorboard=True) == []
    bench.use(bucket, machine="third")
    assert epochs_of(bench.restore().succeeds()) == [4, 4]


@contextmanager
def stopped(server: S3Server) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_storage_that_fails_for_a_while_is_retried_and_nothing_is_missing(
    bench: Bench, bucket: Bucket, proxy: Proxy
) -> None:
    gate, last = bench.gate("any-2"), bench.gate("any-4")
    script = bench.start()
    script.wait_for("at 0 2")
    script.wait_for("at 1 2")
    proxy.break_off()
    gate.open()
    script.wait_for("at 0 4")
    script.wait_for("at 1 4")
    script.said("; retrying")
    proxy.mend()
    last.open()
    script.succeeds()
    assert epochs_of(script) == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_storage_that_is_gone_for_good_ends_fit_with_what_is_missing_and_a_restore_uploads_it(
    bench: Bench, bucket: Bucket
) -> None:
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "2"
    script, gate = bench.held_in(2)
    with stopped(bucket.server):
        gate.open()
        assert script.ends() == 1
    script.finish_reading()
    assert "the experiment has ended, but this is not in s3://" in script.stderr
    assert "checkpoint_000001" in script.stderr
    assert f"Everything is kept in {bench.folder}/first/run" in script.stderr
    assert script.left() == []
    local = bench.folder / "first" / "run"
    assert checker.fold(local).trials.keys()
    for trial in checker.fold(local).trials.values():
        assert len(list((local / trial.dirname).glob("checkpoint_*"))) == 4
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "60"
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


@pytest.mark.nightly
def test_a_second_ctrl_c_ends_a_run_whose_storage_does_not_answer(
    bench: Bench, bucket: Bucket
) -> None:
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "3600"
    script, gate = bench.held_in(2)
    with stopped(bucket.server):
        gate.open()
        script.wait_for("at 0 4")
        script.wait_for("at 1 4")
        script.signal(signal.SIGINT)
        script.said("again to kill everything now")
        script.signal(signal.SIGINT)
        assert script.ends() == -signal.SIGINT
    script.finish_reading()
    assert "Not in storage yet:" in script.stderr
    assert "/checkpoint_0000" in script.stderr
    assert script.left() == []
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


@pytest.mark.parametrize("wrong", ["bucket", "secret", "server"])
def test_storage_that_cannot_be_written_is_an_error_before_the_first_trial(
    bench: Bench, rclone: S3Server, wrong: str
) -> None:
    place = {"bucket": "missing-bucket/x", "secret": "bucket/x", "server": "bucket/x"}[wrong]
    uri = rclone.uri(place, secret_key="not-the-secret" if wrong == "secret" else None)
    if wrong == "server":
        uri = uri.replace(rclone.endpoint, "http://127.0.0.1:9")
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "first")
    script = bench.start(storage=uri)
    assert script.ends() == 1
    script.finish_reading()
    assert f"write to s3://{place}" in script.stderr
    assert not [note for note in bench.notes() if note["what"] == "ran"]
    assert rclone.secret_key not in script.stderr
    assert "not-the-secret" not in script.stderr


def test_credentials_are_in_no_file_of_the_tree_and_no_object_of_the_bucket(
    bench: Bench, rclone: S3Server, rclone_folder: Path
) -> None:
    uri = rclone.uri(f"bucket/{bench.folder.name}")
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "first")
    options: dict[str, Any] = {"storage": uri, "env_vars": {"MY_TOKEN": SECRET}, "artifacts": True}
    script = bench.start(**options).succeeds()
    assert epochs_of(script) == [4, 4]
    secrets = [SECRET, rclone.secret_key]
    local = bench.folder / "first"
    remote = rclone_folder / "bucket" / bench.folder.name
    assert list(remote.rglob("checkpoint_000003"))
    for place in (local, remote):
        assert list(checker.leaked(place, secrets)) == []
        assert list(checker.leaked(place, ["epoch"]))  # the search itself works
    assert rclone.secret_key not in script.stderr
    assert checker.check(remote / "run", tensorboard=True) == []
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "second")
    assert epochs_of(bench.restore(**options).succeeds()) == [4, 4]


FILESYSTEMS = {
    "pyarrow": """
import pyarrow.fs
def make(endpoint, key, secret):
    return pyarrow.fs.S3FileSystem(endpoint_override=endpoint, access_key=key, secret_key=secret,
                                   region="us-east-1")
""",
    "wrapped": """
import pyarrow.fs, s3fs
def make(endpoint, key, secret):
    inner = s3fs.S3FileSystem(key=key, secret=secret, endpoint_url=endpoint)
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(inner))
""",
    "subclass": """
import s3fs
class Own(s3fs.S3FileSystem):
    pass
def make(endpoint, key, secret):
    return Own(key=key, secret=secret, endpoint_url=endpoint)
""",
    "fsspec": """
import s3fs
def make(endpoint, key, secret):
    return s3fs.S3FileSystem(key=key, secret=secret, endpoint_url=endpoint)
""",
    "not picklable": """
import s3fs, threading
class Locked(s3fs.S3FileSystem):
    cachable = False
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lock = threading.Lock()
    def __reduce__(self):
        raise TypeError("this filesystem stays where it was made")
def make(endpoint, key, secret):
    return Locked(key=key, secret=secret, endpoint_url=endpoint)
""",
}
WITH_FILESYSTEM = """
import sys
from holdfast import tune
from tests.rig.epochs import epoch_of, resumed, saved
from tests.rig.script import mark, wait_at

def train(config):
    for epoch in range(resumed() + 1, 4):
        wait_at(f"any-{epoch}")
        tune.report({"epoch": epoch}, checkpoint=saved(epoch))
        mark("reported", epoch)

if __name__ == "__main__":
    endpoint, key, secret, path, what = sys.argv[1:]
    filesystem = make(endpoint, key, secret)
    if what == "begin":
        tuner = tune.Tuner(train, run_config=tune.RunConfig(
            storage_path=path, storage_filesystem=filesystem, name="run",
            sync_config=tune.SyncConfig(sync_period=0.2)))
    else:
        assert tune.Tuner.can_restore(path + "/run", storage_filesystem=filesystem)
        tuner = tune.Tuner.restore(path + "/run", train, storage_filesystem=filesystem)
    result = tuner.fit()[0]
    print("CHECKPOINT", epoch_of(result.checkpoint), result.checkpoint.path)
    print("FILESYSTEM", type(result.filesystem).__name__, result.path)
"""


@pytest.mark.parametrize(
    "kind", rest_nightly(1, ["not picklable", "pyarrow", "wrapped", "subclass", "fsspec"])
)
def test_a_filesystem_given_as_an_object_is_used_for_everything(
    bench: Bench, moto: S3Server, kind: str
) -> None:
    path = bench.write(FILESYSTEMS[kind] + WITH_FILESYSTEM)
    prefix = f"bucket/{bench.folder.name}"
    arguments = (moto.endpoint, "the-access-key", SECRET, prefix)
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "first")
    gate = bench.gate("any-3")
    script = bench.run(path, *arguments, "begin")
    script.wait_for("reported 2")
    script.dies()
    gate.open()
    restored = bench.run(path, *arguments, "restore").succeeds()
    assert f"CHECKPOINT 3 {prefix}/run/train_" in restored.stdout
    assert "FILESYSTEM" in restored.stdout
    copy = Bucket(moto, bench.folder.name).download(bench.folder / "bucket")
    assert checker.check(copy, secrets=[SECRET], tensorboard=True) == []
    assert list(checker.leaked(bench.folder / "first", [SECRET])) == []
    assert restored.left() == []


def test_a_killed_uploader_is_replaced_within_the_same_epoch_of_the_bucket(
    bench: Bench, bucket: Bucket
) -> None:
    script, gate = bench.held_in(3, num_to_keep=1)
    bucket.wait_for_committed(2)
    (uploader,) = script.processes("uploader")
    uploader.kill()
    script.said("it is started again")
    gate.open()
    script.succeeds()
    assert [found["checkpoint"] for found in results(script)] == [4, 4]
    # Claiming another epoch could take the experiment away from a restore elsewhere.
    assert {key.rpartition("/")[2] for key in bucket.named("") if "/.epochs/" in key} == {"000001"}
    assert bench.problems(bucket.download(bench.folder / "bucket"), tensorboard=True) == []


def test_a_public_bucket_is_read_without_credentials(
    moto: S3Server, bench: Bench, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "else")
    make_bucket(moto, "public")
    run = tune.RunConfig(storage_path=moto.uri("public/runs"), name="open", verbose=0)
    tune.Tuner(reported, run_config=run).fit()
    open_to_all(moto, "public")
    uri = f"s3://anonymous@public/runs/open?endpoint_override={proxy.endpoint}"
    analysis = tune.ExperimentAnalysis(uri)
    assert [trial.last_result["value"] for trial in analysis.trials] == [7]
    assert proxy.signed
    assert not any(proxy.signed)
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(bench.folder / "elsewhere"))
    assert tune.Tuner.can_restore(uri)
    [result] = tune.Tuner.restore(uri, reported).get_results()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert Path(folder, "state").read_text() == "seven"
    assert len(proxy.signed) > 5
    assert not any(proxy.signed)


def reported(config: dict[str, Any]) -> None:
    folder = tune.staging_directory()
    Path(folder, "state").write_text("seven")
    tune.report({"value": 7}, checkpoint=tune.Checkpoint(folder))


def open_to_all(server: S3Server, bucket: str) -> None:
    """Make the current objects of the bucket public."""
    import boto3

    s3 = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
    )
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    for found in s3.list_objects_v2(Bucket=bucket)["Contents"]:
        s3.put_object_acl(Bucket=bucket, Key=found["Key"], ACL="public-read")
