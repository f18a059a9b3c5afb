"""A hostile experiment with valid checksums, here or in a bucket: restoring it writes and removes
nothing outside of it."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import msgpack
import pytest

from holdfast.syncer.journal.segment import HEADER, MAGIC
from tests.rig import checker
from tests.rig.bench import Bench
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


def make_victim(folder: Path) -> Path:
    """Files that a restore would sweep, append to and overwrite, if it took the folder for a
    trial's."""
    victim = folder / "victim"
    for name in (".staging/x", "checkpoint_000000/model", "result.json", "stdout", "progress.csv"):
        path = victim / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs\n")
    return victim


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def forge(root: Path, dirname: str) -> None:
    """The first trial has its folder there."""
    records = list(checker.records(root))
    next(record for record in records if record[0] == "Suggested")[2]["spec"]["dirname"] = dirname
    data = MAGIC
    for record in records:
        payload = msgpack.packb(record)
        data += HEADER.pack(len(payload), zlib.crc32(payload)) + payload
    for path in (root / "journal").glob("*.log"):
        path.unlink()
    (root / "journal" / "000000.log").write_bytes(data)
    for path in root.glob("experiment_state-*"):
        path.unlink()


def fails_in_a_line(bench: Bench, folder: Path) -> None:
    victim = make_victim(folder)
    before = contents(victim)
    script = bench.restore()
    assert script.ends() == 1
    script.finish_reading()
    told = [line for line in script.stderr.splitlines() if "dirname" in line]
    assert len(told) == 1, script.stderr
    assert "must be one plain name" in told[0]
    assert script.left() == []
    assert contents(victim) == before


def test_a_restore_writes_nothing_outside_of_the_experiment(killed: Bench) -> None:
    forge(killed.root, "../../victim")
    fails_in_a_line(killed, killed.folder)


def test_a_restore_does_not_follow_the_link_in_place_of_a_trials_folder(killed: Bench) -> None:
    victim = make_victim(killed.folder)
    before = contents(victim)
    trial = sorted(killed.root.glob("train_*"))[0]
    shutil.rmtree(trial)
    trial.symlink_to(victim)
    script = killed.restore()
    assert script.ends() == 1
    script.finish_reading()
    assert "is a link: holdfast would read or write something outside" in script.stderr
    assert contents(victim) == before


@pytest.mark.server
def test_a_restore_from_a_bucket_writes_nothing_outside_of_the_experiment(
    killed: Bench, moto: S3Server
) -> None:
    forge(killed.root, f"{killed.folder}/victim")
    bucket = Bucket(moto, killed.folder.name)
    bucket.upload(killed.root)
    killed.use(bucket, machine="second")
    fails_in_a_line(killed, killed.folder)
