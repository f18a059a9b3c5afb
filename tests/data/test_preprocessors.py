"""Preprocessors: their numbers are those of scikit-learn and pandas."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.preprocessing as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import data
from holdfast.data import preprocessors as ours
from holdfast.trial.errors import InvalidConfig

FRAME = pd.DataFrame(
    {
        "a": [1.0, 2.0, 3.0, None],
        "c": [5.0] * 4,
        "s": ["x", "y", "x", "z"],
        "i": [1, 2, 3, 4],
    }
)


@pytest.fixture
def ds() -> data.Dataset:
    """The rows in two blocks."""
    return data.from_pandas(FRAME.iloc[:3]).union(data.from_pandas(FRAME.iloc[3:]))


FLOATS = st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), min_size=2, max_size=30)


@settings(max_examples=30)
@given(values=FLOATS)
def test_scalers_agree_with_those_of_scikit_learn(values: list[float]) -> None:
    array = np.array(values)
    halves = [data.from_numpy({"x": part}) for part in np.array_split(array, 2)]
    ds = halves[0].union(halves[1])
    for name in ("StandardScaler", "MinMaxScaler"):
        wanted = getattr(theirs, name)().fit_transform(array.reshape(-1, 1))[:, 0]
        scaled = getattr(ours, name)(columns=["x"]).fit_transform(ds)
        if name != "StandardScaler" or array.std() > 1e-4 * abs(array).max():
            np.testing.assert_allclose(scaled.to_pandas()["x"], wanted, atol=1e-6, err_msg=name)


def test_scalers_have_their_numbers_and_leave_missing_values(ds: data.Dataset) -> None:
    scaler = ours.StandardScaler(columns=["a", "c"]).fit(ds)
    assert scaler.stats_ == {
        "mean(a)": 2.0, "std(a)": pytest.approx(0.8164966), "mean(c)": 5.0, "std(c)": 0.0
    }  # fmt: skip
    assert scaler.transform_batch(FRAME)["a"].round(3).tolist()[:3] == [-1.225, 0.0, 1.225]
    assert scaler.transform_batch(FRAME)["a"].isna().tolist() == [False] * 3 + [True]
    assert scaler.transform_batch(FRAME)["c"].tolist() == [0.0] * 4
    least = ours.MinMaxScaler(columns=["i"], output_columns=["scaled"]).fit(ds)
    assert least.stats_ == {"min(i)": 1, "max(i)": 4}
    arrays = least.transform_batch({"i": np.array([1, 4])})
    assert (list(arrays), arrays["scaled"].tolist()) == (["i", "scaled"], [0.0, 1.0])
    assert repr(least) == "MinMaxScaler(columns=['i'], output_columns=['scaled'])"


@pytest.mark.parametrize("scaler", [ours.StandardScaler, ours.MinMaxScaler])
def test_a_column_without_values_stays_without_values(scaler: Any) -> None:
    empty = data.from_items([{"x": None, "y": 1.0}, {"x": float("nan"), "y": 1.0}])
    scaled = scaler(columns=["x"]).fit_transform(empty)
    assert [row["x"] for row in scaled.take_all()] == [None, None]
    assert set(scaler(columns=["y"]).fit(empty.limit(0)).stats_.values()) == {None}


def test_encoders_number_the_values_in_their_order(ds: data.Dataset) -> None:
    one_hot = ours.OneHotEncoder(columns=["s", "i"]).fit(ds)
    assert one_hot.stats_ == {
        "unique_values(s)": {"x": 0, "y": 1, "z": 2},
        "unique_values(i)": {1: 0, 2: 1, 3: 2, 4: 3},
    }
    (batch,) = one_hot.transform(ds).iter_batches()
    assert batch["s"].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert (batch["i"].shape, batch["i"].dtype) == ((4, 4), np.uint8)
    few = ours.OneHotEncoder(columns=["s"], max_categories={"s": 2}).fit(ds)
    assert few.stats_ == {"unique_values(s)": {"x": 0, "y": 1}}
    assert few.transform_batch({"s": np.array(["z", "y"])})["s"].tolist() == [[0, 0], [0, 1]]
    label = ours.LabelEncoder(label_column="s").fit(ds)
    assert label.transform_batch(FRAME)["s"].tolist() == [0, 1, 0, 2]
    assert label.transform_batch(pd.DataFrame({"s": ["new", "y"]}))["s"].isna()[0]
    back = label.inverse_transform(label.transform(ds))
    assert [row["s"] for row in back.take_all()] == ["x", "y", "x", "z"]
    ordinal = ours.OrdinalEncoder(columns=["s"], output_columns=["n"]).fit_transform(ds)
    assert [row["n"] for row in ordinal.take_all()] == [0, 1, 0, 2]
    with pytest.raises(InvalidConfig, match="column 'a' has missing values: use SimpleImputer"):
        ours.OrdinalEncoder(columns=["a"]).fit(ds)


def test_columns_of_categories_are_encoded_by_their_values(tmp_path: Path) -> None:
    frame = pd.DataFrame({"k": pd.Categorical(["b", "a"], categories=["b", "a", "never"])})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "x.parquet")
    found = ours.OrdinalEncoder(columns=["k"]).fit(data.read_parquet(tmp_path))
    assert found.stats_ == {"unique_values(k)": {"a": 0, "b": 1}}
    assert found.transform_batch(frame)["k"].tolist() == [1, 0]


def test_missing_values_are_filled(ds: data.Dataset) -> None:
    mean = ours.SimpleImputer(columns=["a"]).fit(ds)
    assert (mean.stats_, mean.transform_batch(FRAME)["a"].tolist()) == (
        {"mean(a)": 2.0},
        [1, 2, 3, 2],
    )
    frequent = ours.SimpleImputer(columns=["s"], strategy="most_frequent").fit(ds)
    assert frequent.stats_ == {"most_frequent(s)": "x"}
    assert frequent.transform_batch({"s": np.array(["y", None])})["s"].tolist() == ["y", "x"]
    constant = ours.SimpleImputer(columns=["a"], strategy="constant", fill_value=9)
    assert constant.transform_batch(FRAME)["a"].tolist() == [1, 2, 3, 9]
    assert mean.transform_batch({"a": np.array([np.nan, 1.0])})["a"].tolist() == [2.0, 1.0]
    with pytest.raises(InvalidConfig, match="goes with strategy='constant'"):
        ours.SimpleImputer(columns=["a"], strategy="constant")


def test_columns_become_one_of_vectors(ds: data.Dataset) -> None:
    encoded = ours.OneHotEncoder(columns=["s"]).fit_transform(ds)
    joined = ours.Concatenator(columns=["i", "s"], dtype=np.float32).transform(encoded)
    assert joined.schema().names == ["a", "c", "concat_out"]
    (batch,) = joined.select_columns("concat_out").iter_torch_batches()
    assert (str(batch["concat_out"].dtype), batch["concat_out"].shape) == ("torch.float32", (4, 4))
    assert batch["concat_out"][3].tolist() == [4.0, 0.0, 0.0, 1.0]
    rest = ours.Concatenator(output_column_name="x", exclude=["s"]).transform(ds)
    assert rest.schema().names == ["s", "x"]
    with pytest.raises(InvalidConfig, match="'no', but the dataset has a, c, s, i"):
        ours.Concatenator(columns=["no"], raise_if_missing=True).transform_batch(FRAME)
    with pytest.raises(InvalidConfig, match="the column 's' has no numbers"):
        ours.Concatenator(columns=["s"]).transform_batch(FRAME)


class Assigned(ours.Preprocessor):
    _is_fittable = False

    def __init__(self, function: Any) -> None:
        self.function = function

    def _transform_pandas(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(b=self.function(frame))


def test_a_chain_fits_each_to_what_those_before_it_make(ds: data.Dataset) -> None:
    chain = ours.Chain(
        ours.SimpleImputer(columns=["a"]),
        Assigned(lambda frame: frame["a"] * 10),
        ours.StandardScaler(columns=["b"]),
        ours.Concatenator(columns=["a", "b"], output_column_name="x"),
    )
    assert chain.fit_status() == ours.Preprocessor.FitStatus.NOT_FITTED
    with pytest.raises(ours.PreprocessorNotFittedException, match=r"call Chain\.fit\(dataset\)"):
        chain.transform(ds)
    made = chain.fit_transform(ds)
    assert chain.fit_status() == "FITTED"
    assert chain.preprocessors[2].stats_["mean(b)"] == 20.0
    wanted: Any = [[1, -1.4142], [2, 0], [3, 1.4142], [2, 0]]
    for batch in (
        made.take_batch(4),
        chain.transform(ds).take_batch(4),
        chain.transform_batch(FRAME),
    ):
        np.testing.assert_allclose(np.stack(list(batch["x"])), np.array(wanted), atol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ours.StandardScaler(columns=["a"], output_columns=["b"]),
        lambda: ours.OneHotEncoder(columns=["s", "i"], max_categories={"s": 2}),
        lambda: ours.LabelEncoder("s"),
        lambda: ours.SimpleImputer(columns=["s"], strategy="most_frequent"),
        lambda: ours.Concatenator(columns=["i", "c"], dtype=np.float32),
        lambda: ours.Chain(ours.MinMaxScaler(["i"]), ours.Concatenator(exclude=["s"])),
    ],
)
def test_a_fitted_preprocessor_travels_as_json(ds: data.Dataset, make: Any) -> None:
    fitted = make().fit(ds)
    rows = pa.table(FRAME.fillna(0))
    wanted = fitted.transform_batch(rows).to_pylist()
    text = json.loads(json.dumps(fitted.serialize()))  # as in a checkpoint's metadata
    for again in (ours.Preprocessor.deserialize(text), pickle.loads(pickle.dumps(fitted))):
        assert repr(again) == repr(fitted)
        assert again.transform_batch(rows).to_pylist() == wanted


class Doubled(ours.Preprocessor):
    _is_fittable = False

    def __init__(self, by: int = 2) -> None:
        self.by = by

    def _transform_pandas(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(i=frame["i"] * self.by)


class Shifted(ours.Preprocessor):
    def _fit(self, dataset: Any) -> ours.Preprocessor:
        self.stats_ = {"least": dataset.to_pandas()["i"].min()}
        return self

    def _transform_numpy(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "i": batch["i"] - self.stats_["least"]}


def test_a_preprocessor_of_your_own_has_two_methods(ds: data.Dataset) -> None:
    chain = ours.Chain(Doubled(3), Shifted()).fit(ds)
    assert [row["i"] for row in chain.transform(ds).take_all()] == [0, 3, 6, 9]
    again = ours.Preprocessor.deserialize(chain.serialize())
    assert again.transform_batch(FRAME)["i"].tolist() == [0, 3, 6, 9]


def test_what_cannot_be_meant_is_named(ds: data.Dataset) -> None:
    wrong: dict[str, Any] = {
        r"fit\(\) names the column 'z', but": lambda: ours.StandardScaler(columns=["z"]).fit(ds),
        r"the column 's' has no numbers": lambda: ours.StandardScaler(columns=["s"]).fit(ds),
        r"columns='a'\) must be a list": lambda: ours.StandardScaler(columns="a"),
        r"has 2 names for 1 columns": lambda: ours.MinMaxScaler(["a"], ["b", "c"]),
        r"takes a Dataset, not a DataFrame": lambda: ours.MinMaxScaler(["a"]).fit(FRAME),
        r"cannot be serialized": lambda: Assigned(len).serialize(),
        r"the text that serialize\(\) returned": lambda: ours.Preprocessor.deserialize("[]"),
        r"preprocessor 'os.system' is not known": lambda: ours.Preprocessor.deserialize(
            '{"format": 1, "type": "os.system", "arguments": {}, "stats": null}'
        ),
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidConfig, match=message):
            call()
    with pytest.raises(
        AttributeError, match=r"no attribute 'PowerTransformer'\. Use .*map_batches"
    ):
        _ = ours.PowerTransformer
