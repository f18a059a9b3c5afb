"""Aggregates, groups and joins, compared with those of pandas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import data
from holdfast.data.aggregate import Count, Max, Mean, Min, Std, Sum
from holdfast.trial.errors import InvalidConfig

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.none() | st.integers(-100, 100)
ROWS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=30)


def dataset(rows: list[tuple[Any, Any]], blocks: int = 3) -> data.Dataset:
    """The rows in several blocks."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    size = -(-len(rows) // blocks)
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    made = [data.from_arrow(pa.table([*zip(*part, strict=True)], schema=schema)) for part in parts]
    return made[0].union(*made[1:])


@given(rows=ROWS)
def test_groups_have_the_values_that_pandas_computes(rows: list[tuple[str, int | None]]) -> None:
    grouped = pd.DataFrame(rows, columns=["k", "v"]).astype({"v": "Int64"}).groupby("k")["v"]
    found = dataset(rows).groupby("k").aggregate(
        Sum("v"), Min("v"), Max("v"), Mean("v"), Std("v"), Count("v", ignore_nulls=True), Count()
    ).to_pandas()  # fmt: skip
    assert found["k"].tolist() == sorted({key for key, _ in rows})
    assert found["count()"].tolist() == grouped.size().tolist()
    assert found["count(v)"].tolist() == grouped.count().tolist()
    for name in ("min", "max", "mean", "std"):
        wanted = getattr(grouped, name)().astype("Float64").to_numpy(float, na_value=np.nan)
        np.testing.assert_allclose(found[f"{name}(v)"].to_numpy(float), wanted, err_msg=name)
    wanted = grouped.sum(min_count=1).astype("Float64").to_numpy(float, na_value=np.nan)
    np.testing.assert_allclose(found["sum(v)"].to_numpy(float), wanted)


@given(rows=ROWS)
def test_aggregates_of_all_rows_are_values(rows: list[tuple[str, int | None]]) -> None:
    ds = dataset(rows)
    values = [value for _, value in rows if value is not None]
    assert ds.sum("v") == (sum(values) if values else None)
    assert (ds.min("v"), ds.max("v")) == ((min(values), max(values)) if values else (None, None))
    assert ds.mean("v") == (pytest.approx(np.mean(values)) if values else None)
    if len(values) > 1:
        assert ds.std("v") == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    if len(values) < len(rows):
        assert ds.sum("v", ignore_nulls=False) is None
    assert ds.unique("k") == list(dict.fromkeys(key for key, _ in rows))


def test_no_rows_have_no_values_and_no_groups() -> None:
    empty = dataset([("a", 1), ("b", 2)]).filter(lambda row: row["v"] > 2)
    assert (empty.sum("v"), empty.min("v"), empty.std("v")) == (None, None, None)
    assert empty.aggregate(Count()) == {"count()": 0}
    groups = empty.groupby("k").mean("v")
    assert (groups.columns(), groups.count()) == (["k", "mean(v)"], 0)


def test_several_columns_give_a_dict_and_one_a_value() -> None:
    ds = data.from_items([{"x": n, "y": n / 2, "t": "a"} for n in range(4)])
    assert ds.sum() == {"sum(x)": 6, "sum(y)": 3.0}
    assert ds.mean(["x"]) == 1.5
    assert ds.aggregate(Max("x", alias_name="most"), Count()) == {"most": 3, "count()": 4}
    assert ds.max("t") == "a"
    assert ds.groupby(None).sum("x").take_all() == [{"sum(x)": 6}]
    assert ds.groupby(["t"]).mean().columns() == ["t", "mean(x)", "mean(y)"]
    assert ds.groupby("t").count().take_all() == [{"t": "a", "count()": 4}]


def test_categories_of_several_files_are_groups(tmp_path: Path) -> None:
    for at, levels in enumerate((["low", "high"], ["mid", "low"])):
        frame = pd.DataFrame({"k": pd.Categorical(levels), "v": [1, 2]})
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / f"{at}.parquet")
    ds = data.read_parquet(tmp_path)
    assert ds.groupby("k").sum("v").take_all() == [
        {"k": "high", "sum(v)": 2}, {"k": "low", "sum(v)": 3}, {"k": "mid", "sum(v)": 1}
    ]  # fmt: skip
    assert ds.unique("k") == ["low", "high", "mid"]
    other = data.from_items([{"k": "low", "w": 5}])
    assert ds.join(other, "inner", on="k").to_pandas()["w"].tolist() == [5, 5]
    assert sum(len(batch) for batch in ds.iter_batches(batch_format="pandas", batch_size=3)) == 4


def test_a_function_gets_the_rows_of_each_group() -> None:
    ds = data.from_items([{"k": n % 3, "t": "xyz"[n % 2], "v": n} for n in range(9)])
    sizes = ds.groupby("k").map_groups(lambda batch: {"k": batch["k"][:1], "n": [len(batch["v"])]})
    assert sizes.take_all() == [{"k": n, "n": 3} for n in range(3)]
    first = ds.groupby(["k", "t"]).map_groups(
        lambda frame, at: frame.iloc[at : at + 1], batch_format="pandas", fn_args=[0]
    )
    assert [(row["k"], row["t"], row["v"]) for row in first.take_all()] == [
        (0, "x", 0), (0, "y", 3), (1, "x", 4), (1, "y", 1), (2, "x", 2), (2, "y", 5)
    ]  # fmt: skip
    with pytest.raises(InvalidConfig, match="returned a int"):
        ds.groupby("k").map_groups(lambda batch: 1)


JOINS = {"inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer"}


@settings(max_examples=20)  # each is 12 joins, of Arrow and pandas
@given(left=ROWS, right=ROWS)
def test_joins_have_the_rows_that_pandas_finds(
    left: list[tuple[str, int | None]], right: list[tuple[str, int | None]]
) -> None:
    one, two = dataset(left), dataset(right).rename_columns({"v": "w"})
    frames = one.to_pandas().astype({"v": "Float64"}), two.to_pandas().astype({"w": "Float64"})
    for ours, theirs in JOINS.items():
        found = one.join(two, ours, 2, on=("k",)).to_pandas()
        wanted = frames[0].merge(frames[1], how=theirs, on="k")
        assert list(found) == ["k", "v", "w"]
        assert rows_of(found) == rows_of(wanted)
    for kind, wanted_in in (("semi", True), ("anti", False)):
        keys = {key for key, _ in right}
        assert one.join(two, f"left_{kind}", on="k").take_all() == [
            {"k": key, "v": value} for key, value in left if (key in keys) is wanted_in
        ]
        assert two.join(one, f"right_{kind}", on="k").take_all() == [
            {"k": key, "v": value} for key, value in left if (key in keys) is wanted_in
        ]


def rows_of(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    found = frame.astype({"v": "Float64", "w": "Float64"})
    return sorted(tuple(map(str, row)) for row in found.itertuples(index=False))  # type: ignore[misc]


def test_a_join_keeps_columns_of_any_type_and_the_order_of_the_left_side() -> None:
    left = data.from_items([{"id": n, "x": np.full(2, n)} for n in (3, 1, 2)])
    right = data.from_items([{"key": n, "x": [n] * n} for n in (1, 2, 3)])
    joined = left.join(right, "inner", on="id", right_on="key", right_suffix="_r")
    assert joined.columns() == ["id", "x", "x_r"]
    assert [(row["id"], row["x"].tolist(), list(row["x_r"])) for row in joined.take_all()] == [
        (3, [3, 3], [3, 3, 3]), (1, [1, 1], [1]), (2, [2, 2], [2, 2])
    ]  # fmt: skip
    with pytest.raises(
        InvalidConfig, match=r"both datasets have the column 'x': pass left_suffix"
    ):
        left.join(right, "inner", on="id", right_on="key")


def test_what_cannot_be_meant_is_named() -> None:
    ds = data.from_items([{"k": "a", "v": 1}])
    wrong: dict[str, Callable[[], Any]] = {
        r"groupby\('z'\) names the column 'z', but the dataset has k, v": lambda: ds.groupby("z"),
        r"mean\(z\) names the column 'z'": lambda: ds.mean("z"),
        r"mean\(k\) cannot be computed": lambda: ds.mean("k"),
        r"join_type='cross' must be one of full_outer, inner": lambda: ds.join(
            ds, "cross", on="k"
        ),
        r"join\(on=\['z'\]\) names": lambda: ds.join(ds, "inner", on="z"),
        r"pass Sum, Min, Max": lambda: ds.aggregate("sum"),  # type: ignore[arg-type]
        r"unique\('z'\)": lambda: ds.unique("z"),
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidConfig, match=message):
            call()
