"""Promise 8. Only relative paths are stored. Copy the directory to another machine or bucket and
restore."""

from __future__ import annotations

import shutil

import pytest

from tests.rig import checker
from tests.rig.bench import Bench, epochs_of
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


def test_two_copies_continue_each_by_itself_when_the_original_is_gone(bench: Bench) -> None:
    bench.killed_in(3)
    copies = [bench.folder / name / "renamed" for name in ("one", "two")]
    for copy in copies:
        shutil.copytree(bench.root, copy)
    shutil.rmtree(bench.storage)
    for copy in copies:
        assert list(checker.places(copy)) == []
        assert epochs_of(bench.restore(path=str(copy)).succeeds()) == [4, 4]
        assert checker.check(copy, tensorboard=True) == []
        assert list(checker.leaked(copy / "journal", [str(bench.storage)])) == []
    assert not bench.storage.exists()


@pytest.mark.server
def test_a_local_experiment_copied_into_a_bucket_is_restored_from_there(
    bench: Bench, moto: S3Server
) -> None:
    bench.killed_in(3)
    bucket = Bucket(moto, bench.folder.name)
    bucket.upload(bench.root)
    shutil.rmtree(bench.storage)
    bench.use(bucket, machine="elsewhere")
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert checker.check(bucket.download(bench.folder / "copy"), tensorboard=True) == []
