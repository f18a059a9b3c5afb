"""An experiment in Google Cloud Storage (a fake on loopback), and HDFS without Hadoop."""

from __future__ import annotations

import pytest

from holdfast.cli import main
from tests.rig import checker
from tests.rig.bench import Bench, epochs_of, results
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.gcs_server import GcsServer
from tests.rig.storage.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]


class GcsBucket(Bucket):
    """A bucket whose `storage_path` leads through the proxy, without credentials."""

    def __init__(self, server: GcsServer, prefix: str, proxy: Proxy) -> None:
        self.proxy: Proxy = proxy
        self.uri = server.uri(f"bucket/{prefix}")
        self.public = f"gs://anonymous@bucket/{prefix}"
        self.storage_path = GcsServer(endpoint=proxy.endpoint, pid=0).uri(f"bucket/{prefix}")

    @property
    def experiment(self) -> str:
        """The URI of the experiment, past the proxy."""
        path, mark, query = self.uri.partition("?")
        return f"{path}/run{mark}{query}"

    @property
    def environ(self) -> dict[str, str]:
        return {}

    def wait_for_committed(self, count: int) -> None:
        """The proxy reads the bodies of puts: the names are not in the paths."""
        assert isinstance(self.proxy, Proxy)
        while self._committed() < count:
            self.proxy.wait_for("GET", "head.json")


@pytest.fixture
def bucket(gcs: GcsServer, bench: Bench) -> GcsBucket:
    proxy = Proxy(gcs.endpoint)
    bench.stack.callback(proxy.close)
    made = GcsBucket(gcs, bench.folder.name, proxy)
    bench.use(made, machine="first")
    return made


def test_an_experiment_is_restored_from_gs_on_an_empty_machine(
    bench: Bench, bucket: GcsBucket, capsys: pytest.CaptureFixture[str]
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
    assert main(["doctor", bucket.experiment]) == 0, capsys.readouterr()


def test_a_bucket_that_is_not_there_is_reported_before_the_first_trial(
    bench: Bench, bucket: GcsBucket
) -> None:
    nowhere = bucket.storage_path.replace("@bucket/", "@no-such-bucket/")
    script = bench.start(storage=nowhere)
    assert script.ends() == 1
    script.finish_reading()
    assert "no-such-bucket" in script.stderr


def test_without_hadoop_hdfs_is_refused_in_seconds_with_what_is_missing(bench: Bench) -> None:
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "first")
    script = bench.start(storage="hdfs://namenode:8020/user/me/results")
    assert script.ends(20) == 1
    script.finish_reading()
    *_, told = script.stderr.strip().splitlines()
    assert "hdfs://namenode:8020/user/me/results" in told
    assert "Java and Hadoop's libhdfs" in told
    assert len(script.stderr) < 5_000
