"""Datasets in memory: creating, iterating and splitting them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast import data
from holdfast.trial.errors import InvalidConfig

ITEMS = [{"x": i, "y": 2 * i} for i in range(10)]


@pytest.fixture
def ds() -> data.Dataset:
    return data.from_items(ITEMS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.from_items(ITEMS),
        lambda: data.from_pandas(pd.DataFrame(ITEMS)),
        lambda: data.from_pandas([pd.DataFrame(ITEMS[:4]), pd.DataFrame(ITEMS[4:])]),
        lambda: data.from_arrow(pa.Table.from_pylist(ITEMS)),
        lambda: data.from_arrow([pa.Table.from_pylist(ITEMS[at : at + 5]) for at in (0, 5)]),
        lambda: data.from_numpy({"x": np.arange(10), "y": 2 * np.arange(10)}),
        lambda: data.range(10).map_batches(lambda batch: {"x": batch["id"], "y": 2 * batch["id"]}),
    ],
    ids=["items", "frame", "frames", "table", "tables", "arrays", "range"],
)
def test_the_same_rows_come_from_anything(make: Callable[[], data.Dataset]) -> None:
    made = make()
    assert made.count() == 10
    assert made.schema() == pa.schema([("x", pa.int64()), ("y", pa.int64())])
    assert made.take() == list(made.iter_rows()) == ITEMS
    assert made.take(2) == ITEMS[:2]
    assert made.to_pandas().to_dict("records") == ITEMS
    assert made.to_pandas(limit=3).to_dict("records") == ITEMS[:3]
    assert made.materialize().take() == ITEMS
    assert pickle.loads(pickle.dumps(made.materialize())).take() == ITEMS


def test_items_that_are_no_dicts_are_a_column() -> None:
    assert data.from_items(["a", "b"]).take() == [{"item": "a"}, {"item": "b"}]
    images = data.from_items([{"image": np.full((2, 3), i)} for i in range(4)])
    assert [batch["image"].shape for batch in images.iter_batches(batch_size=3)] == [
        (3, 2, 3), (1, 2, 3)
    ]  # fmt: skip


def test_arrays_of_more_axes_keep_their_shape_wherever_they_go() -> None:
    given = np.arange(24.0).reshape(4, 2, 3)
    made = data.from_numpy([given[:1], given[1:]])
    for shuffled in (made, made.random_shuffle(seed=3)):
        (batch,) = shuffled.iter_batches(batch_size=None)
        assert batch["data"].shape == given.shape
        assert sorted(batch["data"][:, 0, 0]) == [0, 6, 12, 18]
        (tensors,) = shuffled.iter_torch_batches(batch_size=4)
        assert tensors["data"].shape == given.shape
    assert made.to_pandas()["data"][1].tolist() == given[1].tolist()
    again = made.map_batches(lambda batch: {"twice": 2 * batch["data"]}).materialize()
    assert again.take(1)[0]["twice"].tolist() == (2 * given[0]).tolist()


def test_batches_come_in_the_format_that_was_asked_for(ds: data.Dataset) -> None:
    wanted = {"numpy": dict, "default": dict, "pandas": pd.DataFrame, "pyarrow": pa.Table}
    for name, kind in wanted.items():
        found = list(ds.iter_batches(batch_size=4, batch_format=name))
        assert all(isinstance(batch, kind) for batch in found)
        columns = [
            batch["x"].tolist() if name == "pandas" else list(batch["x"]) for batch in found
        ]
        numbers = [[int(str(number)) for number in column] for column in columns]
        assert numbers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_batches_have_the_size_that_was_asked_for_whatever_lies_below() -> None:
    made = data.from_items(list(range(10)))
    for size, drop, wanted in ((4, False, [4, 4, 2]), (4, True, [4, 4]), (None, False, [10])):
        found = made.iter_batches(batch_size=size, drop_last=drop)
        assert [len(batch["item"]) for batch in found] == wanted


def test_texts_lists_and_what_is_missing_come_through() -> None:
    rows = [
        {"t": "a", "l": [1], "n": 1, "b": True}, {"t": None, "l": [], "n": None, "b": False},
        {"t": "c", "l": [1, 2], "n": 3, "b": True},
    ]  # fmt: skip
    made = data.from_items(rows)
    (batch,) = made.iter_batches()
    assert batch["t"].tolist() == ["a", None, "c"]
    assert [list(one) for one in batch["l"]] == [[1], [], [1, 2]]
    assert np.isnan(batch["n"][1])
    assert batch["b"].tolist() == [True, False, True]
    (mixed,) = made.random_shuffle(seed=1).iter_batches()
    assert sorted(map(str, mixed["t"])) == ["None", "a", "c"]
    assert made.to_arrow().to_pylist() == rows


def test_tensors_are_copies_that_a_loop_may_write_to(ds: data.Dataset) -> None:
    for _ in range(2):
        (batch,) = ds.iter_torch_batches()
        assert batch["x"].tolist() == list(range(10))
        batch["x"] += 1
    (arrays,) = ds.iter_batches()
    with pytest.raises(ValueError, match="read-only"):
        arrays["x"] += 1


def test_tensors_have_the_types_and_the_form_that_were_asked_for(ds: data.Dataset) -> None:
    import torch  # takes two seconds, which the collection of other files' tests need not wait for

    (one,) = ds.iter_torch_batches(dtypes=torch.float32)
    assert {tensor.dtype for tensor in one.values()} == {torch.float32}
    (two,) = ds.iter_torch_batches(dtypes={"x": torch.int32}, device="cpu")
    assert (two["x"].dtype, two["y"].dtype) == (torch.int32, torch.int64)
    (pair,) = ds.iter_torch_batches(
        collate_fn=lambda batch: (torch.as_tensor(batch["x"].copy()), len(batch))
    )
    assert pair[0].tolist() == list(range(10))
    assert pair[1] == 2


def test_a_shuffle_follows_from_the_seed_and_the_epoch(ds: data.Dataset) -> None:
    def epochs(seed: int | None) -> list[list[int]]:
        rows = ds.random_shuffle(seed=seed).iterator()
        return [[row["x"] for row in rows.iter_rows()] for _ in range(3)]

    first = epochs(0)
    assert first == epochs(0) == epochs(None)
    assert first != epochs(1)
    assert first[0] != first[1] != first[2]
    assert all(sorted(epoch) == list(range(10)) for epoch in first)


def test_a_local_shuffle_stays_within_its_buffer(ds: data.Dataset) -> None:
    rows = ds.iterator()
    epochs = []
    for _ in range(2):
        found = rows.iter_batches(batch_size=3, local_shuffle_buffer_size=5, local_shuffle_seed=7)
        epochs.append([int(x) for batch in found for x in batch["x"]])
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        assert epoch != list(range(10))
        assert sorted(epoch[:5]) == [0, 1, 2, 3, 4]
        assert sorted(epoch[5:]) == [5, 6, 7, 8, 9]


def test_a_dataset_is_split_into_consecutive_rows(ds: data.Dataset) -> None:
    assert [[row["x"] for row in part.take()] for part in ds.split(3)] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8, 9]
    ]  # fmt: skip
    train, test = ds.train_test_split(0.3)
    assert [row["x"] for row in test.take()] == [7, 8, 9]
    assert train.random_shuffle(seed=1).count() == 7
    train, test = ds.train_test_split(3, shuffle=True, seed=1)
    found = [row["x"] for part in (train, test) for row in part.take()]
    assert sorted(found) == list(range(10)) != found
    (half, _) = ds.random_shuffle(seed=0).split(2)
    assert sorted(row["x"] for row in half.iter_rows()) == [0, 1, 2, 3, 4]


def test_functions_of_batches_run_when_rows_are_wanted() -> None:
    sizes = []

    def noted(batch: dict[str, Any], by: int) -> dict[str, Any]:
        sizes.append(len(batch["id"]))
        return {"id": batch["id"] * by}

    made = data.range(10).map_batches(noted, batch_size=3, fn_kwargs={"by": 2})
    assert sizes == []
    made = made.map_batches(lambda frame: frame.assign(z=frame["id"] + 1), batch_format="pandas")
    found = [batch["z"].tolist() for batch in made.iter_batches(batch_size=5)]
    assert found == [[1, 3, 5, 7, 9], [11, 13, 15, 17, 19]]
    assert sizes == [3, 3, 3, 1, 3, 2, 3, 2]  # first, to know whether the number of rows stays
    assert made.schema().names == ["id", "z"]


def test_show_prints_rows(ds: data.Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    ds.show(1)
    assert capsys.readouterr().out == "{'x': 0, 'y': 0}\n"
    assert repr(ds) == "Dataset(10 rows; x: int64, y: int64)"


# -- bad input ------------------------------------------------------------------------------------


def test_what_cannot_be_meant_names_itself_and_what_is_there(ds: data.Dataset) -> None:
    import torch

    wrong: dict[str, Callable[[], Any]] = {
        r"batch_size=0 must be a whole number from 1 on": lambda: ds.iter_batches(batch_size=0),
        r"batch_size=2.5 must be": lambda: ds.iter_torch_batches(batch_size=2.5),  # type: ignore[arg-type]
        r"batch_size=None must be": lambda: ds.to_tf("x", "y", batch_size=None),  # type: ignore[arg-type]
        r"prefetch_batches=-1 must": lambda: ds.iter_batches(prefetch_batches=-1),
        r"local_shuffle_buffer_size=0": lambda: ds.iter_batches(local_shuffle_buffer_size=0),
        r"batch_format='torch' must be one of": lambda: ds.iter_batches(batch_format="torch"),
        r"the column 'z', but the dataset has x, y": lambda: ds.iter_torch_batches(
            dtypes={"z": torch.float32}
        ),
        r"omit dtypes": lambda: ds.iter_torch_batches(dtypes=torch.int, collate_fn=dict),
        r"split\(11\) of a dataset with 10 rows": lambda: ds.split(11),
        r"train_test_split\(1.0\) of 10 rows leaves one part empty": lambda: ds.train_test_split(
            1.0
        ),
        r"seed='a' must be": lambda: ds.random_shuffle(seed="a"),  # type: ignore[arg-type]
        r"item 1 is {'y': 1}.*columns \['x'\]": lambda: data.from_items([{"x": 1}, {"y": 1}]),
        r"have the same length, not a: 1, b: 2": lambda: data.from_numpy({"a": [1], "b": [1, 2]}),
        r"a dataset cannot have the column 'item'": lambda: data.from_items([object()]),
        r"range\(-1\)": lambda: data.range(-1),
        r"takes a list of items, not 'abc'": lambda: data.from_items("abc"),
        r"takes a list of items, not None": lambda: data.from_items(None),  # type: ignore[arg-type]
        r"takes DataFrames, not a int": lambda: data.from_pandas([1]),
        r"arrays of the shapes \(\): ": lambda: data.from_numpy(3.0),
        r"limit=-1 must be": lambda: ds.take(-1),
        r"the result of state_dict\(\) of a shard, not {'a": lambda: ds.iterator().load_state_dict(
            {"a": 1}
        ),
        r"takes pyarrow.Tables, not a list": lambda: data.from_arrow([[1]]),
        r"needs a function of a batch": lambda: ds.map_batches(5),  # type: ignore[arg-type]
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidConfig, match=message):
            call()


def test_lists_of_one_length_are_tensors_and_others_are_not() -> None:
    lists = data.from_items([{"x": [[1.0, n], [2.0, n]]} for n in range(4)])
    (batch,) = lists.iter_torch_batches(batch_size=4)
    assert batch["x"].shape == (4, 2, 2)
    assert batch["x"][3].tolist() == [[1.0, 3.0], [2.0, 3.0]]
    for odd in ([1.0], None, [1.0, None, 2.0]):
        ragged = data.from_items([{"x": [1.0, 2.0]}, {"x": odd}])
        with pytest.raises(
            InvalidConfig, match=r"'x' cannot be a tensor: .* of different lengths"
        ):
            next(iter(ragged.iter_torch_batches()))


def test_text_cannot_be_a_tensor(ds: data.Dataset) -> None:
    texts = data.from_items([{"x": 1, "t": "a"}])
    with pytest.raises(
        InvalidConfig, match="column 't' cannot be a tensor: its values are text, or lists"
    ):
        list(texts.iter_torch_batches())


def test_a_function_may_lose_rows_and_must_return_a_batch(ds: data.Dataset) -> None:
    def half(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["x"][::2]}

    (batch,) = ds.map_batches(half).iter_batches()
    assert batch["x"].tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(InvalidConfig, match="returned a int: return a dict"):
        list(ds.map_batches(len).iter_batches())
    with pytest.raises(InvalidConfig, match=r"columns of a batch have \[1, 2\] rows"):
        list(ds.map_batches(lambda batch: {"a": [1], "b": [1, 2]}).iter_batches())


def test_an_error_of_the_users_function_comes_out_of_the_loop(ds: data.Dataset) -> None:
    def broken(batch: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(ds.map_batches(broken).iter_batches())


def test_categories_and_time_zones_of_a_frame_are_kept() -> None:
    kinds = pd.CategoricalDtype(["low", "high", "never"], ordered=True)
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "level": pd.Series(["high", None, "low"], dtype=kinds),
            "at": pd.to_datetime(["2026-01-01"] * 3).tz_localize("Europe/Vienna"),
        }
    )
    made = data.from_pandas(frame)
    whole = made.to_pandas()
    assert list(whole) == ["n", "level", "at"]
    assert whole["level"].dtype.categories.tolist() == ["low", "high", "never"]
    assert whole["level"].dtype.ordered
    assert [str(value) for value in whole["level"]] == ["high", "nan", "low"]
    assert str(whole["at"].dt.tz) == "Europe/Vienna"
    for size in (2, 3, None):
        for batch in made.iter_batches(batch_size=size, batch_format="pandas"):
            assert batch["level"].dtype.categories.tolist() == ["low", "high", "never"]
    shuffled = made.random_shuffle(seed=1).to_pandas()
    assert shuffled["level"].dtype.ordered
    kept = made.map_batches(lambda batch: batch[["level"]], batch_format="pandas")
    assert kept.to_pandas()["level"].dtype.categories.tolist() == ["low", "high", "never"]
    other = pd.DataFrame({"level": pd.Categorical(["a"])})
    both = data.from_pandas([other, pd.DataFrame({"level": pd.Categorical(["b"])})])
    assert both.to_pandas()["level"].tolist() == ["a", "b"]
    assert set(both.to_pandas()["level"].dtype.categories) == {"a", "b"}
