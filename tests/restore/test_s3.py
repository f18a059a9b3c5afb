"""An experiment in a bucket: the tree of the guides, restored where nothing else is left."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.location import Location
from holdfast.testing import checker
from holdfast.testing.s3_server import S3Server
from holdfast.testing.script import UserScript

pytestmark = [pytest.mark.process, pytest.mark.server]

Results = Callable[[UserScript], list[dict[str, Any]]]
SECRET = "s3cr3t-0f-th3-us3r"


class Machine:
    """A machine of its own: another folder for what is not in the bucket yet."""

    def __init__(self, bench: Any, name: str) -> None:
        self.folder = bench.folder / name
        self.root = self.folder / "run"

    @property
    def environ(self) -> dict[str, str]:
        return {"RAY_AIR_LOCAL_CACHE_DIR": str(self.folder)}


class Bucket:
    """What lies in one folder of a bucket, seen from outside."""

    def __init__(self, server: S3Server, prefix: str, proxy: Any = None) -> None:
        self.server = server
        self.proxy = proxy
        self.prefix = f"bucket/{prefix}"
        self.uri = server.uri(self.prefix)
        endpoint = server.endpoint if proxy is None else proxy.endpoint
        self.plain = f"s3://{self.prefix}?endpoint_override={endpoint}"

    def environ(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.server.access_key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def download(self, target: Path, prefix: str = "") -> Path:
        """The objects as files, which the checker can read."""

        async def fetch() -> None:
            store = Location.resolve(self.uri, None, {}).open_store()
            try:
                for entry in await store.list(prefix):
                    path = target / entry.key
                    path.parent.mkdir(parents=True, exist_ok=True)
                    await store.get(entry.key, path)
            finally:
                await store.close()

        asyncio.run(fetch())
        return target / "run"

    def named(self, ending: str) -> set[str]:
        """The keys that end so."""

        async def look() -> set[str]:
            store = Location.resolve(self.uri, None, {}).open_store()
            try:
                return {entry.key for entry in await store.list() if entry.key.endswith(ending)}
            finally:
                await store.close()

        return asyncio.run(look())


@pytest.fixture
def bucket(moto: S3Server, bench: Any, proxy: Any) -> Bucket:
    made = Bucket(moto, bench.folder.name, proxy)
    bench.options["storage"] = made.plain
    bench.environ |= made.environ() | Machine(bench, "first").environ
    return made


def on(bench: Any, machine: Machine) -> Any:
    bench.environ |= machine.environ
    return bench


def test_the_bucket_holds_the_tree_that_the_guides_draw(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    script = bench.start(artifacts=True, num_to_keep=2).succeeds()
    assert [found["checkpoint"] for found in results_of(script)] == [4, 4]
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


def test_artifacts_are_in_the_bucket_where_they_are_wanted(bench: Any, bucket: Bucket) -> None:
    bench.start(artifacts=True, sync_artifacts=True).succeeds()
    assert len(bucket.named("/artifact.txt")) == 2


def test_an_experiment_is_restored_from_the_bucket_on_an_empty_machine(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    gate = bench.gate("any-3")
    script = bench.start(num_to_keep=1)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    published(bucket, committed=4)
    script.kill()
    assert script.left() == []
    gate.open()
    second = Machine(bench, "second")
    restored = on(bench, second).restore(num_to_keep=1).succeeds()
    assert [found["epoch"] for found in results_of(restored)] == [4, 4]
    assert [found["checkpoint"] for found in results_of(restored)] == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert checker.check(copy, tensorboard=True) == []
    assert checker.check(second.root, tensorboard=True) == []


def published(bucket: Bucket, *, committed: int) -> None:
    """Wait until the journal in the bucket tells of so many committed checkpoints."""
    while committed_in(bucket) < committed:
        bucket.proxy.wait_for("PUT", "/head.json")


def committed_in(bucket: Bucket) -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = bucket.download(Path(folder), "run/journal")
        return sum(name == "Committed" for name, _, _ in checker.records(root))


def test_a_restore_on_the_same_machine_uploads_what_was_cut_off(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    gate = bench.gate("any-3")
    script = bench.start(sync_period=3600)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.kill()
    gate.open()
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results_of(restored)] == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_the_older_incarnation_is_refused_once_another_machine_has_restored(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    gate = bench.gate("any-3")
    older = bench.start()
    older.wait_for("at 0 3")
    older.wait_for("at 1 3")
    published(bucket, committed=4)
    frozen = older.processes()
    for process in frozen:
        process.kill(signal.SIGSTOP)
    second = Machine(bench, "second")
    newer = on(bench, second).restore()
    newer.wait_for("begun 0 2")
    newer.wait_for("begun 1 2")
    gate.open()
    newer.succeeds()
    for process in frozen:
        process.kill(signal.SIGCONT)
    assert older.ends() == 1
    older.finish_reading()
    assert "a newer restore of this experiment has taken" in older.stderr
    assert older.left() == []
    assert [found["epoch"] for found in results_of(newer)] == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert checker.check(copy, tensorboard=True) == []
    again = on(bench, Machine(bench, "third")).restore().succeeds()
    assert [found["epoch"] for found in results_of(again)] == [4, 4]


@contextmanager
def stopped(server: S3Server) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_stalled_bucket_delays_no_report(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    gate = bench.gate("any-2")
    script = bench.start(epochs=30)
    script.wait_for("at 0 2")
    script.wait_for("at 1 2")
    with stopped(bucket.server):
        gate.open()
        script.wait_for("reported 0 30")
        script.wait_for("reported 1 30")
    script.succeeds()
    assert [found["epoch"] for found in results_of(script)] == [30, 30]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_storage_that_fails_for_a_while_is_tried_again_and_nothing_is_missing(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    gate, last = bench.gate("any-2"), bench.gate("any-4")
    script = bench.start()
    script.wait_for("at 0 2")
    script.wait_for("at 1 2")
    bucket.proxy.break_off()
    gate.open()
    script.wait_for("at 0 4")
    script.wait_for("at 1 4")
    script.said("it is tried again")
    bucket.proxy.mend()
    last.open()
    script.succeeds()
    assert [found["epoch"] for found in results_of(script)] == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


def test_storage_that_is_gone_for_good_ends_fit_with_what_is_missing_and_a_restore_uploads_it(
    bench: Any, bucket: Bucket, results_of: Results
) -> None:
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "2"
    gate = bench.gate("any-2")
    script = bench.start()
    script.wait_for("at 0 2")
    script.wait_for("at 1 2")
    with stopped(bucket.server):
        gate.open()
        assert script.ends() == 1
    script.finish_reading()
    assert "the experiment has ended, but this is not in s3://" in script.stderr
    assert "checkpoint_000001" in script.stderr
    assert f"Everything is kept in {bench.folder}/first/run" in script.stderr
    assert script.left() == []
    local = Machine(bench, "first").root
    assert checker.fold(local).trials.keys()
    for trial in checker.fold(local).trials.values():
        assert len(list((local / trial.dirname).glob("checkpoint_*"))) == 4
    restored = bench.restore().succeeds()
    assert [found["epoch"] for found in results_of(restored)] == [4, 4]
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []


@pytest.mark.parametrize("wrong", ["bucket", "secret", "server"])
def test_storage_that_cannot_be_written_is_an_error_before_the_first_trial(
    bench: Any, rclone: S3Server, wrong: str
) -> None:
    place = {"bucket": "missing-bucket/x", "secret": "bucket/x", "server": "bucket/x"}[wrong]
    uri = rclone.uri(place, secret_key="not-the-secret" if wrong == "secret" else None)
    if wrong == "server":
        uri = uri.replace(rclone.endpoint, "http://127.0.0.1:9")
    bench.environ |= Machine(bench, "first").environ
    script = bench.start(storage=uri)
    assert script.ends(30) == 1
    script.finish_reading()
    assert f"write to s3://{place}" in script.stderr
    assert not [note for note in bench.notes() if note["what"] == "ran"]
    assert rclone.secret_key not in script.stderr
    assert "not-the-secret" not in script.stderr


def test_credentials_are_in_no_file_of_the_tree_and_no_object_of_the_bucket(
    bench: Any, rclone: S3Server, rclone_folder: Path, results_of: Results
) -> None:
    uri = rclone.uri(f"bucket/{bench.folder.name}")
    bench.environ |= Machine(bench, "first").environ
    options = {"storage": uri, "env_vars": {"MY_TOKEN": SECRET}, "artifacts": True}
    script = bench.start(**options).succeeds()
    assert [found["epoch"] for found in results_of(script)] == [4, 4]
    secrets = [SECRET, rclone.secret_key]
    local = bench.folder / "first"
    remote = rclone_folder / "bucket" / bench.folder.name
    assert list(remote.rglob("checkpoint_000003"))
    for place in (local, remote):
        assert list(checker.leaked(place, secrets)) == []
        assert list(checker.leaked(place, ["epoch"]))  # the search itself finds what is there
    assert rclone.secret_key not in script.stderr
    assert checker.check(remote / "run", tensorboard=True) == []
    second = on(bench, Machine(bench, "second")).restore(**options).succeeds()
    assert [found["epoch"] for found in results_of(second)] == [4, 4]


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
import json, sys, tempfile
from pathlib import Path
from holdfast import tune
from holdfast.testing.script import mark, wait_at

def train(config):
    start = 1
    if tune.get_checkpoint():
        with tune.get_checkpoint().as_directory() as folder:
            start = int(Path(folder, "epoch").read_text()) + 1
    for epoch in range(start, 4):
        wait_at(f"any-{epoch}")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(folder))
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
    with result.checkpoint.as_directory() as folder:
        print("CHECKPOINT", Path(folder, "epoch").read_text(), result.checkpoint.path)
    print("FILESYSTEM", type(result.filesystem).__name__, result.path)
"""


@pytest.mark.parametrize("kind", FILESYSTEMS)
def test_a_filesystem_given_as_an_object_is_used_for_everything(
    bench: Any, moto: S3Server, kind: str
) -> None:
    path = bench.write(FILESYSTEMS[kind] + WITH_FILESYSTEM)
    prefix = f"bucket/{bench.folder.name}"
    arguments = (moto.endpoint, "the-access-key", SECRET, prefix)
    bench.environ |= Machine(bench, "first").environ
    gate = bench.gate("any-3")
    script = bench.run(path, *arguments, "begin")
    script.wait_for("reported 2")
    script.kill()
    assert script.left() == []
    gate.open()
    restored = bench.run(path, *arguments, "restore").succeeds()
    assert f"CHECKPOINT 3 {prefix}/run/train_" in restored.stdout
    assert "FILESYSTEM" in restored.stdout
    copy = Bucket(moto, bench.folder.name).download(bench.folder / "bucket")
    assert checker.check(copy, secrets=[SECRET], tensorboard=True) == []
    assert list(checker.leaked(bench.folder / "first", [SECRET])) == []
    assert restored.left() == []
