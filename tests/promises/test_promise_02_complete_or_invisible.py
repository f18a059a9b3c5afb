"""Promise 2. A checkpoint is seen by a reader only when every byte of it is there. Cut the upload
at any operation: the reader sees the previous checkpoint, whole."""

from __future__ import annotations

import pytest

from tests.rig import checker
from tests.rig.bench import Bench, epochs_of
from tests.rig.nightly import rest_nightly
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]


@pytest.mark.parametrize("cut_at", rest_nightly(1, ["/weights", "/head.json", "/.holdfast.json"]))
def test_an_upload_cut_at_any_operation_shows_only_whole_checkpoints(
    bench: Bench, moto: S3Server, proxy: Proxy, cut_at: str
) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    script, gate = bench.held_in(2)
    bucket.wait_for_committed(2)
    proxy.break_off_after("PUT", cut_at)
    gate.open()
    proxy.wait_for_break()
    script.kill_all()
    assert script.left() == []
    proxy.mend()

    copy = bucket.download(bench.folder / "copy")
    visible = [path.parent for path in copy.rglob(".holdfast.json")]
    assert len(visible) >= 2
    for checkpoint in visible:
        assert list(checker.manifest_problems(checkpoint)) == []

    bench.use(bucket, machine="second")
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert checker.check(bucket.download(bench.folder / "end"), tensorboard=True) == []
