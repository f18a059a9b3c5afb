"""Methods of datasets that return other rows and columns."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from holdfast import data
from holdfast.trial.errors import InvalidConfig

FRAME = pd.DataFrame({"x": range(12), "y": [n % 3 for n in range(12)], "t": list("abcdefghijkl")})


@pytest.fixture(params=["memory", "files", "mapped"])
def ds(request: pytest.FixtureRequest, tmp_path: Path) -> data.Dataset:
    """The same rows in memory, in row groups of five, and after a function."""
    if request.param == "memory":
        return data.from_pandas(FRAME)
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "x.parquet", row_group_size=5)
    ds = data.read_parquet(tmp_path)
    if request.param == "files":
        return ds
    doubled = ds.map_batches(lambda batch: {**batch, "x": batch["x"] * 2})
    return doubled.map_batches(lambda batch: {**batch, "x": batch["x"] // 2})


def xs(ds: data.Dataset) -> list[int]:
    return [int(number) for batch in ds.iter_batches(batch_size=4) for number in batch["x"]]


def test_a_function_of_rows_makes_rows(ds: data.Dataset) -> None:
    made = ds.map(
        lambda row, by, more: {"z": row["x"] * by + more}, fn_args=[10], fn_kwargs={"more": 1}
    )
    assert [row["z"] for row in made.take_all()] == [10 * n + 1 for n in range(12)]
    assert made.columns() == ["z"]
    with pytest.raises(InvalidConfig, match=r"map\(<lambda>\) returned a int: return a dict"):
        ds.map(lambda row: 1).take(1)


def test_a_class_is_made_once_in_a_process_that_needs_it(ds: data.Dataset) -> None:
    made: list[int] = []

    class Adding:
        def __init__(self, by: int, *, times: int) -> None:
            made.append(by)
            self.by = by * times

        def __call__(self, batch: dict[str, Any], *args: int) -> dict[str, Any]:
            return {**batch, "x": batch["x"] + self.by + sum(args)}

    added = ds.map_batches(
        Adding,
        fn_constructor_args=[1],
        fn_constructor_kwargs={"times": 2},
        fn_args=[3],
        concurrency=2,
    )
    assert made == []
    assert xs(added) == list(range(5, 17))
    assert len(made) == 1
    with pytest.raises(InvalidConfig, match="is for a class"):
        ds.map_batches(lambda batch: batch, fn_constructor_args=[1])


def test_a_function_may_yield_its_batch_in_parts(ds: data.Dataset) -> None:
    def halves(batch: dict[str, Any]) -> Any:
        for half in np.array_split(batch["x"], 2):
            yield {"x": half + 1}

    assert xs(ds.map_batches(halves)) == list(range(1, 13))


def test_rows_are_filtered_by_a_function_or_an_expression(ds: data.Dataset) -> None:
    wanted = [n for n in range(12) if n % 3 == 1]
    for kept in (
        ds.filter(lambda row: row["y"] == 1),
        ds.filter(lambda row, y: row["y"] == y, fn_args=[1]),
        ds.filter(expr="y == 1 and x >= 0"),
        ds.filter(expr=(pc.field("y") == 1) & (pc.field("x") >= pc.scalar(0))),
    ):
        assert (kept.count(), xs(kept)) == (4, wanted)
        assert xs(pickle.loads(pickle.dumps(kept.materialize()))) == wanted
        assert [xs(part) for part in kept.split(2)] == [wanted[:2], wanted[2:]]
        assert xs(kept.filter(lambda row: row["x"] > 3)) == wanted[1:]
        assert sorted(xs(kept.random_shuffle(seed=1))) == wanted
    assert ds.filter(lambda row: False).count() == 0
    with pytest.raises(InvalidConfig, match="a function of a row, or expr="):
        ds.filter()


def test_files_are_read_again_for_the_rows_that_a_filter_keeps(tmp_path: Path) -> None:
    numbers = pa.table({"x": np.arange(1000)})
    pq.write_table(numbers, tmp_path / "x.parquet", row_group_size=100)
    kept = data.read_parquet(tmp_path).filter(lambda row: row["x"] % 10 == 3)
    assert len(pickle.dumps(kept)) < 6000
    seen = []
    shard = kept.deal(0, 2)
    batches = iter(shard.iter_batches(batch_size=20))
    seen += next(batches)["x"].tolist()
    again = kept.deal(0, 1)
    again.load_state_dict({**shard.state_dict(), "dealt": [[1, 20]]})
    seen += [int(x) for batch in again.iter_batches() for x in batch["x"]]
    assert seen == list(range(3, 1000, 10))


def test_flat_map_makes_any_number_of_rows(ds: data.Dataset) -> None:
    made = ds.flat_map(lambda row: [{"x": row["x"]}] * row["y"])
    assert xs(made) == [n for n in range(12) for _ in range(n % 3)]
    with pytest.raises(InvalidConfig, match="returned no rows"):
        ds.flat_map(lambda row: [])


def test_columns_are_added_chosen_dropped_and_renamed(ds: data.Dataset) -> None:
    more = ds.add_column("z", lambda frame: frame["x"] + frame["y"])
    assert more.take(2)[1] == {"x": 1, "y": 1, "t": "b", "z": 2}
    assert (
        ds.add_column("z", lambda batch: batch["x"] * 2, batch_format="numpy").take(2)[1]["z"] == 2
    )
    assert ds.add_column("one", lambda frame: 1).take(1)[0]["one"] == 1
    assert ds.select_columns(["t", "x"]).columns() == ["t", "x"]
    assert ds.select_columns("t").take(1) == [{"t": "a"}]
    assert ds.drop_columns(["t"]).columns() == ["x", "y"]
    assert ds.rename_columns({"x": "n"}).columns() == ["n", "y", "t"]
    assert ds.rename_columns(["a", "b", "c"]).take(1) == [{"a": 0, "b": 0, "c": "a"}]
    for call in (ds.select_columns, ds.drop_columns):
        with pytest.raises(InvalidConfig, match=r"the column 'no', but the dataset has x, y, t"):
            call(["no"])
    with pytest.raises(InvalidConfig, match="gives two columns one name"):
        ds.rename_columns({"x": "y"})
    with pytest.raises(InvalidConfig, match="returned 1 values for"):
        ds.add_column("z", lambda frame: [1]).take(2)


def test_datasets_are_joined_end_to_end(ds: data.Dataset) -> None:
    both = ds.union(data.from_pandas(FRAME.iloc[:3]), ds.limit(2))
    assert xs(both) == [*range(12), 0, 1, 2, 0, 1]
    assert [xs(part) for part in both.split_at_indices([11, 14])] == [
        list(range(11)), [11, 0, 1], [2, 0, 1]
    ]  # fmt: skip
    assert sorted(xs(both.random_shuffle(seed=2))) == sorted(xs(both))
    with pytest.raises(InvalidConfig, match="different columns: x, y, t and id"):
        ds.union(data.range(3))


def test_rows_are_limited_and_drawn(ds: data.Dataset) -> None:
    assert (ds.limit(3).count(), ds.limit(99).count(), ds.limit(0).count()) == (3, 12, 0)
    train, test = ds.train_test_split(0.5, stratify="y", seed=1)
    for part in (train, test):
        assert sorted(row["y"] for row in part.take_all()) == [0, 0, 1, 1, 2, 2]
    assert sorted(xs(train) + xs(test)) == list(range(12))


def test_a_dataset_is_split_in_proportions(ds: data.Dataset) -> None:
    assert [len(xs(one)) for one in ds.split_proportionately([0.25, 0.5])] == [3, 6, 3]
    assert [one.count() for one in ds.split(5, equal=True)] == [2] * 5
    for bad in ([], [0.5, 0.5], [-1.0]):
        with pytest.raises(InvalidConfig, match="less than 1 together"):
            ds.split_proportionately(bad)
    with pytest.raises(InvalidConfig, match="in order"):
        ds.split_at_indices([5, 3])


def test_rows_are_looked_at(ds: data.Dataset) -> None:
    assert ds.take_batch(2)["x"].tolist() == [0, 1]
    assert ds.take_batch(2, batch_format="pandas")["t"].tolist() == ["a", "b"]
    assert len(ds.take_all()) == 12
    assert ds.repartition(3).num_blocks() == ds.num_blocks()
    with pytest.raises(InvalidConfig, match=r"take_all\(limit=5\): the dataset has 12 rows"):
        ds.take_all(limit=5)


def test_each_consumer_of_a_streaming_split_reads_its_own_rows_in_each_epoch(
    ds: data.Dataset,
) -> None:
    parts = ds.streaming_split(5, equal=True, locality_hints=None)
    for _ in range(2):
        rows = [[row["x"] for row in part.iter_rows()] for part in parts]
        assert rows == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    whole = [row["x"] for part in ds.streaming_split(5) for row in part.iter_rows()]
    assert whole == list(range(12))


def test_a_method_that_is_not_there_says_what_to_use(ds: data.Dataset) -> None:
    for name, use in {
        "stats": "num_blocks",
        "iter_tf_batches": "to_tf",
        "groupby": "to_pandas",
        "with_column": "add_column",
        "write_tfrecords": "to_arrow",
        "to_torch": "iter_torch_batches",
        "window": "iter_batches",
    }.items():
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'\..*Use .*{use}"):
            getattr(ds, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        _ = ds.nonsense


def test_map_batches_may_change_the_number_of_rows(ds: data.Dataset) -> None:
    def odd(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["x"] % 2 == 1]

    kept = ds.map_batches(odd, batch_format="pandas")
    wanted = [row["x"] for row in ds.take_all() if row["x"] % 2]
    assert (kept.count(), [row["x"] for row in kept.take_all()]) == (len(wanted), wanted)
    assert [row["x"] for row in kept.iter_rows()] == xs(kept) == wanted
    assert [row["x"] for row in kept.limit(2).take_all()] == wanted[:2]
    assert [row["x"] for row in kept.filter(lambda row: row["x"] > 4).take()] == wanted[2:]
    assert [part.count() for part in kept.train_test_split(2)] == [len(wanted) - 2, 2]
    shards = [kept.deal(rank, 2) for rank in range(2)]
    assert sorted(row["x"] for shard in shards for row in shard.iter_rows()) == wanted
    twice = ds.map_batches(lambda batch: {"x": np.repeat(batch["x"], 2)})
    assert twice.union(kept.select_columns("x")).count() == 2 * ds.count() + len(wanted)


def test_a_number_of_rows_that_changes_late_is_no_wrong_count() -> None:
    late = data.range(1000).map_batches(lambda batch: {"id": batch["id"][batch["id"] < 900]})
    with pytest.raises(
        InvalidConfig, match=r"map_batches\(<lambda>\) returned .* materialize\(\)"
    ):
        list(late.iter_batches())
    assert (late.count(), len(late.take_all())) == (900, 900)
    assert sum(len(batch["id"]) for batch in late.iter_batches()) == 900  # now it is known


@pytest.mark.parametrize("shuffled", ["random_shuffle", "randomize_block_order"])
def test_materialize_fixes_the_order_of_epochs(shuffled: str) -> None:
    made = getattr(data.range(50), shuffled)(seed=1).materialize().iterator()
    first, second = ([row["id"] for row in made.iter_rows()] for _ in range(2))
    assert first == second
    assert sorted(first) == list(range(50)) != first


def test_lists_of_rows_stay_lists_and_arrays_arrays() -> None:
    rows = [{"ids": [1, 2]}, {"ids": [3]}, {"ids": []}]
    ds = data.from_items(rows)
    assert ds.take_all() == list(ds.iter_rows()) == rows
    padded = ds.map(lambda row: {"ids": row["ids"] + [0] * (2 - len(row["ids"]))})
    assert [row["ids"] for row in padded.take_all()] == [[1, 2], [3, 0], [0, 0]]
    made = ds.map(lambda row: {"ids": np.asarray(row["ids"])})
    for found in (made, made.materialize(), made.map(lambda row: {"ids": row["ids"] * 2})):
        assert all(isinstance(row["ids"], np.ndarray) for row in found.take_all())
    ragged = ds.map_batches(lambda batch: {"n": [list(ids) * 2 for ids in batch["ids"]]})
    assert [len(row["n"]) for row in ragged.take_all()] == [4, 2, 0]
    assert [len(one) for one in ragged.take_batch(3)["n"]] == [4, 2, 0]


def test_columns_of_a_frame_may_hold_arrays() -> None:
    frame = pd.DataFrame(
        {
            "vector": [np.ones(3), np.zeros(3)],
            "image": [np.ones((2, 2)), np.zeros((2, 2))],
            "nested": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
            "n": [0, 1],
        }
    )
    ds = data.from_pandas(frame)
    assert ds.columns() == ["vector", "image", "nested", "n"]
    (batch,) = ds.iter_batches(batch_size=2)
    assert (batch["vector"].shape, batch["image"].shape) == ((2, 3), (2, 2, 2))
    assert [np.array(one, dtype=np.uint8).sum() for one in batch["nested"]] == [10, 26]
    again = ds.map_batches(lambda frame: frame, batch_format="pandas")
    assert again.take_batch(2)["image"].sum() == 4
