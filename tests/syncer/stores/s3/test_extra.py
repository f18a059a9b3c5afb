"""Without the extra `s3`, what needs it says so in one line; what does not need it works."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pyarrow.fs
import pytest

from holdfast import tune
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.stores.location import Location

BUCKET = "s3://bucket/exp"
LACKING = (
    "S3 needs the extra holdfast[s3], and botocore is not installed. Install it: pip install "
)
NEEDED = ["'aiobotocore>=", "'crc32c>=", "'httptools>=", "'s3fs>="]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment without the extra."""
    for module in ("aiobotocore", "crc32c", "httptools", "s3fs", "botocore", "aiohttp"):
        monkeypatch.setitem(sys.modules, module, None)


def check_line(text: str) -> None:
    (line,) = [line for line in text.splitlines() if "S3" in line]
    assert LACKING in line
    assert all(name in line for name in NEEDED)
    assert "Traceback" not in text


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("variable", ["", "RAY_STORAGE"])
def test_fit_says_so_before_trial_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / "here"))
    if variable:
        monkeypatch.setenv(variable, BUCKET)

    def train(config: dict[str, object]) -> None:
        (tmp_path / "started").touch()

    run = tune.RunConfig(name="x", storage_path=None if variable else BUCKET, verbose=0)
    with pytest.raises(StorageRefused) as told:
        tune.Tuner(train, run_config=run).fit()
    check_line(str(told.value))
    assert str(told.value).startswith(f"cannot write to {BUCKET}/x: ")
    assert not (tmp_path / "started").exists()


@pytest.mark.usefixtures("bare")
def test_restoring_says_so() -> None:
    with pytest.raises(StorageRefused) as told:
        tune.Tuner.restore(BUCKET, trainable=lambda config: None)
    check_line(str(told.value))


@pytest.mark.anyio
async def test_a_part_of_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    # A node's keeper opens its store so, and answers with this error.
    store = Location.resolve(BUCKET, None, {}).open_store()
    with pytest.raises(StorageRefused, match=r"and httptools is not installed\. Install") as told:
        await store.put("key", b"")
    await store.close()
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


@pytest.mark.usefixtures("bare")
def test_pyarrows_own_filesystem_needs_no_extra() -> None:
    bucket = pyarrow.fs.S3FileSystem(anonymous=True, region="eu-west-1")
    assert Location.resolve("bucket/exp", bucket, {}).open_store() is not None
    assert Location.resolve(BUCKET, None, {}).arrow()[1] == "bucket/exp"  # which reads datasets
