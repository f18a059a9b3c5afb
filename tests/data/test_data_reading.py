"""Datasets of CSV, JSON, text, image and other files, read on demand."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv as arrow_csv

from holdfast import data
from holdfast.trial.errors import InvalidConfig
from tests.data.arrow_memory import own_pool


def csv_files(folder: Path, files: int = 3, rows: int = 20) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        numbers = range(file * rows, (file + 1) * rows)
        lines = [f"{n},{n / 2},row {n}\n" for n in numbers]
        (folder / f"{file}.csv").write_text("id,half,text\n" + "".join(lines))
    return folder


def ids(ds: Any, **how: Any) -> list[int]:
    return [int(number) for batch in ds.iter_batches(**how) for number in batch["id"]]


def test_csv_files_are_read_when_their_rows_are_needed(tmp_path: Path) -> None:
    ds = data.read_csv(csv_files(tmp_path / "rows"))
    assert (ds.count(), ds.num_blocks()) == (60, 3)
    assert ds.schema() == pa.schema(
        [("id", pa.int64()), ("half", pa.float64()), ("text", pa.string())]
    )
    assert ids(ds, batch_size=7) == list(range(60))
    assert ds.take(1) == [{"id": 0, "half": 0.0, "text": "row 0"}]
    again = pickle.loads(pickle.dumps(ds))
    assert b"row 1" not in pickle.dumps(ds)
    assert [ids(part) for part in again.split(7)] == [
        list(range(at * 60 // 7, (at + 1) * 60 // 7)) for at in range(7)
    ]


def test_never_more_than_a_few_files_are_in_memory(tmp_path: Path) -> None:
    line = ",".join(f"{n / 7:.12f}" for n in range(8))
    for number in range(10):
        (tmp_path / f"{number}.csv").write_text("a,b,c,d,e,f,g,id\n" + f"{line}\n" * 8_000)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    with own_pool() as pool:
        ds = data.read_csv(tmp_path)
        rows = sum(len(batch["id"]) for batch in ds.iter_batches(batch_size=512))
    assert rows == 80_000
    assert pool.max_memory() < size / 2


def test_an_epoch_of_csv_files_resumes_where_it_was_with_other_ranks(tmp_path: Path) -> None:
    ds = data.read_csv(csv_files(tmp_path / "rows")).random_shuffle(seed=3)
    seen: list[int] = []
    states = []
    for rank in range(2):
        shard = ds.deal(rank, 2)
        batches = iter(shard.iter_batches(batch_size=5))
        for _ in range(3):
            seen += [int(number) for number in next(batches)["id"]]
        states.append(shard.state_dict())
    assert states[0] == states[1]
    for rank in range(3):
        shard = ds.deal(rank, 3)
        shard.load_state_dict(json.loads(json.dumps(states[0])))
        seen += ids(shard, batch_size=4)
    assert sorted(seen) == list(range(60))


def test_types_hold_the_values_of_all_files(tmp_path: Path) -> None:
    lines = ["a,b,c\n", *["1,2020-01-01,\n"] * 20, *["1.5,yes,x\n"] * 20]
    (tmp_path / "1.csv").write_text("".join(lines))
    (tmp_path / "2.csv").write_text("a,d\n7,1\n")
    ds = data.read_csv(tmp_path)
    kinds = {field.name: str(field.type) for field in ds.schema()}
    assert kinds == {"a": "double", "b": "string", "c": "string", "d": "int64"}
    rows = ds.take_all()
    assert [row["a"] for row in rows] == [1.0] * 20 + [1.5] * 20 + [7.0]
    assert [row["b"] for row in rows] == ["2020-01-01"] * 20 + ["yes"] * 20 + [None]
    assert rows[-1]["d"] == 1


def test_directories_lists_patterns_and_folders_named_for_values_are_found(tmp_path: Path) -> None:
    for year in (2024, 2025):
        csv_files(tmp_path / f"year={year}" / "kind=a", files=2, rows=2)
    (tmp_path / ".hidden.csv").write_text("id\n9\n")
    (tmp_path / "notes.md").write_text("id\n8\n")
    first = tmp_path / "year=2024" / "kind=a" / "0.csv"
    ds = data.read_csv(tmp_path, file_extensions=["csv"])
    assert [(row["year"], row["kind"], row["id"]) for row in ds.iter_rows()] == [
        (year, "a", number) for year in (2024, 2025) for number in range(4)
    ]
    assert data.read_csv([first, str(first)]).count() == 4
    assert data.read_csv(f"{tmp_path}/year=*/kind=a/1.csv").count() == 4
    assert data.read_csv(f"{tmp_path}/**/[0].csv").count() == 4
    assert data.read_csv(f"file://{first}", include_paths=True).take(1)[0]["path"] == str(first)
    (tmp_path / "out").mkdir()
    pq.write_table(ds.to_arrow(), tmp_path / "out" / "x.parquet")
    assert data.read_parquet(f"{tmp_path}/out/*.parquet").count() == 8
    assert data.read_parquet([tmp_path / "out", tmp_path / "out"]).count() == 16
    missing = [first, tmp_path / "none.csv"]
    assert data.read_csv(missing, ignore_missing_paths=True).count() == 2
    with pytest.raises(data.DatasetGone, match=r"none\.csv: missing"):
        data.read_csv(missing)


def test_options_of_pyarrow_reach_every_file(tmp_path: Path) -> None:
    rows = [f'{n};"line {n}\nsecond";{"ab"[n % 2]};NA' for n in range(30)]
    (tmp_path / "x.csv").write_text("a comment\n" + "\n".join(rows) + "\n")
    ds = data.read_csv(
        tmp_path / "x.csv",
        read_options=arrow_csv.ReadOptions(column_names=["id", "text", "kind", "no"], skip_rows=1),
        parse_options=arrow_csv.ParseOptions(delimiter=";", newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types={"kind": pa.dictionary(pa.int32(), pa.string())}, null_values=["NA"]
        ),
    )
    assert ids(ds, batch_size=4) == list(range(30))
    frame = ds.to_pandas()
    assert frame["text"][7] == "line 7\nsecond"
    assert frame["kind"].dtype.categories.tolist() == ["a", "b"]
    assert frame["no"].isna().all()
    shuffled = ds.random_shuffle(seed=1).iter_batches(batch_size=7, batch_format="pandas")
    assert all(batch["kind"].dtype.name == "category" for batch in shuffled)


def test_compressed_files_are_unpacked(tmp_path: Path) -> None:
    text = "id\n" + "".join(f"{n}\n" for n in range(100))
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    ds = data.read_csv(tmp_path)
    assert (ds.num_blocks(), ids(ds, batch_size=9)) == (1, list(range(100)))


def test_json_has_an_object_on_each_line_or_is_one_list(tmp_path: Path) -> None:
    rows = [{"a": n, "b": {"c": [n, n + 1]}, "d": "x" if n % 2 else None} for n in range(5)]
    written = {
        "lines.json": "".join(json.dumps(row) + "\n" for row in rows),
        "list.json": json.dumps(rows),
        "pretty.json": json.dumps(rows, indent=2),
        "objects.json": "\n".join(json.dumps(row, indent=1) for row in rows),
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
        ds = data.read_json(tmp_path / name)
        assert [{**row, "b": {"c": list(row["b"]["c"])}} for row in ds.take_all()] == rows, name
    assert data.read_json(tmp_path, lines=True).count() == 20


def test_columns_of_json_hold_the_values_of_all_files(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": 0, "x": 1}]
    rows += [{"id": 1, "x": 0.5, "y": "2020-01-01 00:00:00"}, {"id": 2, "y": "later"}]
    for row in rows:
        (tmp_path / f"{row['id']}.jsonl").write_text(json.dumps(row))
    ds = data.read_json(tmp_path)
    assert [str(kind) for kind in ds.schema().types] == ["int64", "double", "string"]
    assert [(row["id"], row["y"]) for row in ds.take_all()] == [
        (0, None), (1, "2020-01-01 00:00:00"), (2, "later")
    ]  # fmt: skip


@given(lines=st.lists(st.text(st.characters(blacklist_characters="\n\r", codec="utf-8"))))
def test_text_comes_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("text") / "x.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    kept = [line for line in lines if line.strip()]
    if lines:
        ds = data.read_text(path, drop_empty_lines=False)
        assert [row["text"] for row in ds.take_all()] == lines
    assert [row["text"] for row in data.read_text(path).take_all()] == kept


def test_text_has_the_encoding_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes("grün\r\n\r\nblau".encode("utf-16"))
    ds = data.read_text(tmp_path / "x.txt", encoding="utf-16")
    assert ds.take_all() == [{"text": "grün"}, {"text": "blau"}]
    with pytest.raises(InvalidConfig, match=r"read_text\(\) cannot parse .*x\.txt: .*utf-8"):
        data.read_text(tmp_path / "x.txt")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for number in range(4):
        (folder / f"label={'ab'[number % 2]}").mkdir(parents=True, exist_ok=True)
        pixels = np.full((4 + number, 6, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).save(folder / f"label={'ab'[number % 2]}" / f"{number}.png")
    (folder / "readme.txt").write_text("no image")
    return folder


def test_images_are_decoded_when_they_are_needed(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    original = Image.open

    def noted(*args: Any) -> Any:
        opened.append(args)
        return original(*args)

    monkeypatch.setattr(Image, "open", noted)
    ds = data.read_images(images, include_paths=True)
    assert (ds.count(), opened) == (4, [])
    (first,) = ds.take(1)
    assert (first["image"].shape, first["label"], len(opened)) == ((4, 6, 3), "a", 1)
    assert first["path"].endswith("0.png")
    (batch,) = ds.iter_batches()
    assert [image.shape[0] for image in batch["image"]] == [4, 6, 5, 7]
    sized = data.read_images(images, size=(2, 3), mode="L")
    (tensors,) = sized.iter_torch_batches(batch_size=4, collate_fn=lambda one: one["image"])
    assert (tensors.shape, tensors[:, 0, 0].tolist()) == ((4, 2, 3), [0, 20, 10, 30])
    assert sized.columns() == ["image", "label"]
    assert pickle.loads(pickle.dumps(sized)).take(1)[0]["image"].tolist() == [[0] * 3] * 2
    orders = {
        tuple(int(image[0, 0]) for batch in epoch for image in batch["image"])
        for epoch in ([list(sized.random_shuffle(seed=n).iter_batches()) for n in range(6)])
    }
    assert len(orders) > 2


def test_a_file_of_images_that_is_none_is_named(images: Path) -> None:
    (images / "broken.png").write_bytes(b"no image")
    with pytest.raises(InvalidConfig, match=r"cannot decode .*broken\.png"):
        data.read_images(images).take(20)


def test_any_files_are_rows_of_bytes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 2)
    ds = data.read_binary_files(tmp_path, include_paths=True)
    assert ds.take_all() == [
        {"bytes": name.encode() * 2, "path": str(tmp_path / name)} for name in "ab"
    ]
    (tmp_path / "b").unlink()
    with pytest.raises(data.DatasetGone, match=r"/b: missing"):
        ds.check(1)


def test_items_of_a_torch_dataset_are_read_when_they_are_needed() -> None:
    class Squares:
        def __init__(self) -> None:
            self.read: list[int] = []

        def __len__(self) -> int:
            return 6

        def __getitem__(self, at: int) -> Any:
            self.read.append(at)
            return np.full(2, at * at), at

    squares = Squares()
    ds = data.from_torch(squares)
    assert (ds.count(), squares.read) == (6, [])
    (first,) = ds.take(1)
    assert (first["item"][0].tolist(), first["item"][1], set(squares.read)) == ([0, 0], 0, {0})
    pairs = ds.map_batches(
        lambda batch: {
            "x": np.stack([item[0] for item in batch["item"]]),
            "y": np.array([item[1] for item in batch["item"]]),
        }
    )
    (batch,) = pairs.iter_torch_batches()
    assert (batch["x"].shape, batch["y"].tolist()) == ((6, 2), [0, 1, 2, 3, 4, 5])
    assert data.from_torch(number for number in (3, 4)).take_all() == [{"item": 3}, {"item": 4}]
    with pytest.raises(InvalidConfig, match="takes a Dataset, not a int"):
        data.from_torch(5)


def test_a_dataset_of_hugging_face_is_its_arrow_table() -> None:
    class Rows:  # the part of datasets.Dataset that is used
        def with_format(self, kind: str) -> Any:
            assert kind == "arrow"
            return self

        def __len__(self) -> int:
            return 2

        def __getitem__(self, which: slice) -> pa.Table:
            return pa.table({"text": ["a", "b"]})[which]

    assert data.from_huggingface(Rows()).take_all() == [{"text": "a"}, {"text": "b"}]
    with pytest.raises(InvalidConfig, match=r"one split: dataset\[name\], with one of 'train'"):
        data.from_huggingface({"train": Rows()})
    with pytest.raises(InvalidConfig, match="a dataset of Hugging Face, not a list"):
        data.from_huggingface([])


def test_how_ray_would_run_the_work_changes_nothing(tmp_path: Path) -> None:
    folder = csv_files(tmp_path / "rows", files=1)
    ds = data.read_csv(folder, parallelism=4, override_num_blocks=2, concurrency=3)
    made = ds.map_batches(lambda batch: batch, num_cpus=1, num_gpus=0.5, concurrency=(1, 2))
    assert made.repartition(7).random_shuffle(num_blocks=3).count() == 20
    with pytest.raises(
        TypeError, match=r"map_batches\(\) has no parameter 'batch_sise'\. It has fn, batch_size"
    ):
        ds.map_batches(lambda batch: batch, batch_sise=3)
    with pytest.raises(TypeError, match=r"read_csv\(\) has no parameter 'sep'"):
        data.read_csv(folder, sep=";")


# -- bad input ------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    bad: dict[str, tuple[str, Callable[[Path], Any]]] = {
        "x.csv": ("a,b\n1,2\n1,2,3\n", data.read_csv),
        "x.json": ('{"a": 1}\n{"a": \n', data.read_json),
        "y.json": ('{"a": 1}\n{"a": "text"}\n', data.read_json),
        "z.json": ("[1, 2]", data.read_json),
    }
    for name, (text, read) in bad.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InvalidConfig, match=rf"{read.__name__}\(\) cannot parse {path}: "):
            read(path)
    with pytest.raises(InvalidConfig, match=r"found no files that end with .*tsv in "):
        data.read_csv(tmp_path, file_extensions=["tsv"])
    with pytest.raises(InvalidConfig, match="at least one path"):
        data.read_text([])


def test_a_csv_file_that_vanished_or_changed_is_named(tmp_path: Path) -> None:
    folder = csv_files(tmp_path / "rows")
    ds = data.read_csv(folder)
    (folder / "1.csv").write_text("id,half,text\n1,2,x\n")
    with pytest.raises(data.DatasetGone, match=r"1\.csv has 1 rows, but had 20"):
        ds.to_arrow()
    (folder / "2.csv").unlink()
    with pytest.raises(data.DatasetGone, match=r"2\.csv: missing.*pass the dataset again"):
        ds.check(1)
