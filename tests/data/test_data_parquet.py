"""Datasets of Parquet files: read on demand, and named in an error if they are gone."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
import pytest

from holdfast import data
from holdfast.data.rows import Source
from holdfast.trial.errors import InvalidConfig
from tests.data.arrow_memory import own_pool
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

FILES, GROUPS, ROWS = 3, 4, 5
ALL = FILES * GROUPS * ROWS


def write(folder: Path, rows: int = ROWS, **more: Any) -> Path:
    """Files with row groups of these sizes, numbered through in "id"."""
    folder.mkdir(parents=True, exist_ok=True)
    each = GROUPS * rows
    for file in range(FILES):
        ids = np.arange(file * each, (file + 1) * each)
        table = pa.table({"id": ids, **{name: make(ids) for name, make in more.items()}})
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=rows)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "numbers", text=lambda ids: [f"row {number}" for number in ids])


def ids(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["id"]]


@dataclass(frozen=True)
class Noted:
    """A source that records which parts of it are read."""

    source: Source
    reads: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def read(self, block: int, start: int, stop: int) -> Any:
        self.reads.append(block)
        return self.source.read(block, start, stop)


def test_rows_come_in_the_order_of_the_files(folder: Path) -> None:
    ds = data.read_parquet(folder)
    assert ds.count() == ALL
    assert ds.schema().names == ["id", "text"]
    assert ids(ds.iter_batches(batch_size=7)) == list(range(ALL))
    assert ds.take(1) == [{"id": 0, "text": "row 0"}]
    paths: list[str | Path] = [folder / "2.parquet", str(folder / "0.parquet")]
    two = data.read_parquet(paths, columns=["id"])
    assert two.to_pandas()["id"].tolist() == [*range(40, 60), *range(20)]
    assert two.schema().names == ["id"]
    assert two.materialize().take(1) == [{"id": 40}]
    assert data.read_parquet(folder / "1.parquet").count() == 20


def test_folders_named_for_a_value_are_columns(tmp_path: Path) -> None:
    for kind in "ab":
        write(tmp_path / f"kind={kind}")
    ds = data.read_parquet(tmp_path)
    assert Counter(row["kind"] for row in ds.iter_rows()) == {"a": ALL, "b": ALL}
    assert pickle.loads(pickle.dumps(ds)).take(1)[0]["kind"] == "a"


def test_a_shuffle_of_files_has_every_row_once_and_moves_row_groups(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.data.files._LEAST_WINDOW", 8)
    rows = data.read_parquet(folder).random_shuffle(seed=2).iterator()
    epochs = [ids(rows.iter_batches(batch_size=4)) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        assert sorted(epoch) == list(range(ALL))
        # Those of one row group are not far apart, and not next to each other either.
        places = sorted((number // ROWS, at) for at, number in enumerate(epoch))
        spans = [places[at + ROWS - 1][1] - places[at][1] for at in range(0, ALL, ROWS)]
        assert max(spans) < 3 * 8
        assert any(group > after for (group, _), (after, _) in pairwise(
            (number // ROWS, 0) for number in epoch))  # fmt: skip


def test_a_rank_reads_its_own_row_groups_each_once(folder: Path) -> None:
    ds = data.read_parquet(folder)
    reads = []
    for rank in range(3):
        source = Noted(ds.source)
        part = data.Dataset(source=source).deal(rank, 3)
        assert ids(part.iter_batches(batch_size=6)) == list(range(20 * rank, 20 * rank + 20))
        reads.append(source.reads)
    assert reads == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_never_more_than_a_few_row_groups_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.data.files._LEAST_WINDOW", 1)
    folder = write(tmp_path / "large", rows=20_000, more=lambda ids: np.random.rand(len(ids)))
    group = 20_000 * 16
    for ds in (data.read_parquet(folder), data.read_parquet(folder).random_shuffle(seed=0)):
        with own_pool() as pool:
            rows = sum(len(batch["id"]) for batch in ds.iter_batches(batch_size=512))
        assert rows == 12 * 20_000
        # A thread of Arrow releases the last one that it decoded at any time.
        assert pool.bytes_allocated() < 2 * group
        # The one in use, the one read ahead, one of which half is used, and those that decoding
        # needs.
        assert pool.max_memory() < 7 * group


def test_a_pickle_has_the_paths_and_no_rows(folder: Path) -> None:
    ds = data.read_parquet(folder).random_shuffle(seed=1)
    pickled = pickle.dumps(ds)
    assert len(pickled) < 4000
    assert b"row 1" not in pickled
    again = pickle.loads(pickled)
    assert ids(again.iter_batches()) == ids(ds.iter_batches())


def test_parts_of_files_begin_and_end_within_row_groups(folder: Path) -> None:
    ds = data.read_parquet(folder)
    assert [ids(part.iter_batches()) for part in ds.split(7)] == [
        list(range(at * ALL // 7, (at + 1) * ALL // 7)) for at in range(7)
    ]
    (_, last) = ds.train_test_split(0.1)
    (_, two) = last.train_test_split(2)
    assert ids(two.iter_batches()) == [58, 59]
    drawn = [ids(one.iter_batches()) for one in ds.train_test_split(6, shuffle=True, seed=1)]
    assert [len(one) for one in drawn] == [54, 6]
    assert sorted(drawn[0] + drawn[1]) == list(range(ALL))
    assert drawn[1] == sorted(drawn[1]) != list(range(54, 60))


@pytest.mark.server
def test_a_bucket_is_read_as_a_folder_is(
    moto: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(moto, "parquet")
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    store = arrow_fs.S3FileSystem(
        endpoint_override=moto.endpoint, scheme="http", access_key="test", secret_key="test"
    )
    for path in folder.iterdir():
        with store.open_output_stream(f"bucket/parquet/{path.name}") as stream:
            stream.write(path.read_bytes())
    uri = f"s3://test:test@bucket/parquet?endpoint_override={moto.endpoint}"
    ds = data.read_parquet(uri.replace("test:test@", ""))
    again = pickle.loads(pickle.dumps(ds))
    assert ids(again.iter_batches(batch_size=7)) == list(range(ALL))
    assert ids(data.read_parquet("bucket/parquet", filesystem=store).iter_batches())
    store.delete_file("bucket/parquet/1.parquet")
    with pytest.raises(data.DatasetGone, match=r"bucket/parquet/1\.parquet: missing"):
        again.check(1)


# -- bad input ------------------------------------------------------------------------------------


def test_a_file_that_vanished_is_named_with_what_to_do(folder: Path) -> None:
    ds = data.read_parquet(folder)
    batches = iter(ds.iter_batches(batch_size=ROWS))
    next(batches)
    gone = folder / "2.parquet"
    gone.unlink()
    with pytest.raises(data.DatasetGone, match=rf"{gone}: missing.*pass the dataset again"):
        ds.check(1)
    with pytest.raises(data.DatasetGone, match=rf"{gone}: missing"):
        list(batches)
    assert ds.split(3)[0].iterator().count() == 20
    (folder / "0.parquet").write_bytes(b"no parquet")
    with pytest.raises(data.DatasetGone, match=r"cannot be read: .*0\.parquet"):
        data.read_parquet(folder)


def test_a_file_that_became_another_is_not_read_as_if_it_were_the_same(folder: Path) -> None:
    ds = data.read_parquet(folder)
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}), folder / "1.parquet")
    with pytest.raises(data.DatasetGone, match=r"1\.parquet has 2 rows, but had 5"):
        list(ds.iter_batches())


def test_a_path_or_column_that_is_not_there_is_reported_when_the_dataset_is_made(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(data.DatasetGone, match=r"nothing\.parquet: missing"):
        data.read_parquet(tmp_path / "nothing.parquet")
    with pytest.raises(InvalidConfig, match="names the column 'z', but the dataset has id, text"):
        data.read_parquet(folder, columns=["z"])
    with pytest.raises(InvalidConfig, match="at least one path"):
        data.read_parquet([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidConfig, match=r"read_parquet\(\) found no files in .*empty"):
        data.read_parquet(tmp_path / "empty")


def test_credentials_do_not_travel_with_a_dataset(folder: Path) -> None:
    """tuner.pkl has a pickle of it."""
    ds = data.read_parquet(folder)
    with_keys = arrow_fs.S3FileSystem(access_key="A", secret_key="very-secret", region="eu")
    place = type(ds.source.files.place).resolve("bucket", with_keys, {})  # type: ignore[attr-defined]
    files = type(ds.source.files)(place=place, paths=("a",), values=({},))  # type: ignore[attr-defined]
    with pytest.raises(InvalidConfig, match=r"must not contain credentials: .*AWS_ACCESS_KEY_ID"):
        pickle.dumps(files)
