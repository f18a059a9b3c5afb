"""Writers of datasets: what is written is read again, and nothing half-written is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
import pytest

from holdfast import data
from holdfast.trial.errors import InvalidConfig
from tests.data.arrow_memory import own_pool
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

FRAME = pd.DataFrame(
    {
        "id": range(20),
        "x": [None if n == 3 else n / 4 for n in range(20)],
        "kind": pd.Categorical(["low", "high"] * 10, categories=["low", "high", "never"]),
    }
)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_written_is_read_again_in_order(tmp_path: Path) -> None:
    ds = data.from_pandas(FRAME).map_batches(lambda batch: {**batch, "id": batch["id"] + 1})
    for name, read in (
        ("csv", data.read_csv),
        ("json", data.read_json),
        ("parquet", data.read_parquet),
    ):
        assert getattr(ds, f"write_{name}")(tmp_path / name, num_rows_per_file=6) is None
        written = files(tmp_path / name)
        assert [path.suffix for path in written] == [f".{name}"] * 4
        found = read(tmp_path / name).to_pandas()
        assert found["id"].tolist() == list(range(1, 21))
        assert found["x"].isna().tolist() == [n == 3 for n in range(20)]
        assert found["kind"].tolist() == ["low", "high"] * 10


def test_parquet_keeps_categories_tensors_and_row_groups(tmp_path: Path) -> None:
    data.from_pandas(FRAME).write_parquet(tmp_path / "a", row_group_size=8, compression="zstd")
    kept = data.read_parquet(tmp_path / "a")
    assert list(kept.source.sizes) == [8, 8, 4]
    assert kept.to_pandas()["kind"].dtype.categories.tolist() == ["low", "high", "never"]
    (written,) = files(tmp_path / "a")
    assert pq.ParquetFile(written).metadata.row_group(0).column(0).compression == "ZSTD"
    data.from_numpy(np.arange(24.0).reshape(4, 2, 3)).write_parquet(tmp_path / "b")
    (batch,) = data.read_parquet(tmp_path / "b").iter_batches()
    assert batch["data"].shape == (4, 2, 3)


def test_values_become_folders(tmp_path: Path) -> None:
    data.from_pandas(FRAME).write_parquet(tmp_path / "out", partition_cols=["kind"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["kind=high", "kind=low"]
    rows = data.read_parquet(tmp_path / "out").sort("id").take(2)
    assert [(row["id"], row["kind"]) for row in rows] == [(0, "low"), (1, "high")]


def test_the_mode_says_what_becomes_of_older_files(tmp_path: Path) -> None:
    ds = data.range(3)
    for mode, rows in (("append", 3), ("append", 6), ("ignore", 6), ("overwrite", 3)):
        ds.write_csv(tmp_path / "out", mode=mode)
        assert data.read_csv(tmp_path / "out").count() == rows
    with pytest.raises(InvalidConfig, match="has files, and mode is 'error'"):
        ds.write_csv(tmp_path / "out", mode="error")
    with pytest.raises(InvalidConfig, match="mode='new' must be one of 'append'"):
        ds.write_csv(tmp_path / "out", mode="new")


def test_options_of_the_format_are_passed_on(tmp_path: Path) -> None:
    data.range(2).write_csv(tmp_path / "a", include_header=False)
    (path,) = files(tmp_path / "a")
    assert path.read_text() == "0\n1\n"
    data.from_items([{"x": 1, "at": pd.Timestamp("2026-01-01"), "l": [1, 2]}]).write_json(
        tmp_path / "b"
    )
    (path,) = files(tmp_path / "b")
    assert json.loads(path.read_text()) == {"x": 1, "at": "2026-01-01 00:00:00", "l": [1, 2]}
    with pytest.raises(InvalidConfig, match=r"write_csv\(\): .*list.*Use write_parquet"):
        data.from_items([{"l": [1, 2]}]).write_csv(tmp_path / "c")
    assert files(tmp_path / "c") == []


KILLED = """
import os, signal, sys
from holdfast import data

def once(batch):
    if batch["id"][0] >= 8192:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch

data.range(20_000).map_batches(once).write_{kind}(sys.argv[1], num_rows_per_file=5_000)
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_writer_that_is_killed_leaves_only_whole_files(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    command = [sys.executable, "-c", KILLED.format(kind=kind), str(target)]
    done = subprocess.run(command, check=False, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == -9
    assert len(files(target)) <= 1
    read: Any = getattr(data, f"read_{kind}")
    for path in files(target):
        assert read(path).count() == 5_000


def test_an_error_in_the_middle_leaves_only_whole_files(tmp_path: Path) -> None:
    def broken(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] >= 81_920:
            raise ZeroDivisionError("at a row")
        return batch

    with pytest.raises(ZeroDivisionError, match="at a row"):
        data.range(100_000).map_batches(broken).write_parquet(tmp_path, num_rows_per_file=4_096)
    found = [pq.read_metadata(path).num_rows for path in files(tmp_path)]
    assert found == [4_096] * len(found) != []


def test_a_writer_has_a_few_row_groups_in_memory(tmp_path: Path) -> None:
    rows = 1 << 16
    ds = data.range(10 * rows).map_batches(
        lambda batch: {f"x{n}": batch["id"] / (n + 3) for n in range(8)}
    )
    size = rows * 8 * 8
    with own_pool() as pool:
        ds.write_parquet(tmp_path / "large")
    assert data.read_parquet(tmp_path / "large").count() == 10 * rows
    assert pool.max_memory() < 5 * size


@pytest.mark.server
def test_files_are_written_to_a_bucket(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(moto, "written")
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    uri = f"s3://bucket/written/rows?endpoint_override={moto.endpoint}"
    ds = data.from_pandas(FRAME)
    ds.write_parquet(uri, num_rows_per_file=8)
    assert data.read_parquet(uri).to_pandas()["id"].tolist() == list(range(20))
    ds.write_csv(uri.replace("rows", "text"))
    assert data.read_csv(uri.replace("rows", "text")).count() == 20
    store = arrow_fs.S3FileSystem(
        endpoint_override=moto.endpoint, scheme="http", access_key="test", secret_key="test"
    )
    ds.write_json("bucket/written/json", filesystem=store, mode="overwrite")
    assert data.read_json(uri.replace("rows", "json")).count() == 20
