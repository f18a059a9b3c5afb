"""Preprocessors that encode categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.data.preprocessors.base import Preprocessor, outputs_of
from holdfast.data.preprocessors.columns import column_of, counted, each


class _Encoder(Preprocessor):
    """`stats_`: "unique_values(column)", a dict with a number for each value, in their order."""

    columns: list[str]
    output_columns: list[str]
    max_categories: Mapping[str, int] = {}

    def _fit(self, dataset: Any) -> None:
        counts = counted(dataset, self.columns, type(self).__name__)
        found = {}
        for name, values in counts.items():
            most = self.max_categories.get(name)
            kept = sorted(values, key=_place) if most is None else _most_common(values, most)
            found[f"unique_values({name})"] = {value: at for at, value in enumerate(kept)}
        self.stats_ = found

    def _numbers(self, table: Any, name: str) -> Any:
        """The number of each value; missing for those that `fit` did not see."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = column_of(table, name, type(self).__name__)
        values = list(self.stats_[f"unique_values({name})"])
        return pc.index_in(column, value_set=pa.array(values).cast(column.type))

    def _transform_arrow(self, table: Any) -> Any:
        return each(
            table, self.columns, self.output_columns, lambda name: self._encoded(table, name)
        )

    def _encoded(self, table: Any, name: str) -> Any:
        import pyarrow as pa

        return self._numbers(table, name).cast(pa.int64())


def _place(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


def _most_common(values: Any, most: int) -> list[Any]:
    """The most frequent values, sorted."""
    ranked = sorted(values.items(), key=lambda one: (-one[1], _place(one[0])))
    return sorted((value for value, _ in ranked[:most]), key=_place)


class OrdinalEncoder(_Encoder):
    """A number for each value, in their order; a missing one for values that `fit` did not see."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        encode_lists: bool = True,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        self.output_columns = outputs_of(columns, output_columns, "OrdinalEncoder")
        self.columns, self.encode_lists = list(columns), encode_lists


class OneHotEncoder(_Encoder):
    """A vector for each value: 1 at the value's place, and 0 elsewhere; only 0 for values that
    `fit` did not see. `max_categories` keeps the most frequent values of a column."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        max_categories: Mapping[str, int] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        self.output_columns = outputs_of(columns, output_columns, "OneHotEncoder")
        self.columns, self.max_categories = list(columns), dict(max_categories or {})

    def _encoded(self, table: Any, name: str) -> Any:
        import numpy as np
        import pyarrow as pa

        places = self._numbers(table, name).fill_null(-1).to_numpy()
        vectors = np.zeros((len(places), len(self.stats_[f"unique_values({name})"])), np.uint8)
        known = np.flatnonzero(places >= 0)
        vectors[known, places[known]] = 1
        return pa.FixedShapeTensorArray.from_numpy_ndarray(vectors)


class LabelEncoder(_Encoder):
    """A number for each value of one column, the label."""

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        self.label_column, self.output_column = label_column, output_column or label_column
        self.columns, self.output_columns = [label_column], [self.output_column]

    def inverse_transform(self, ds: Any) -> Any:
        """A dataset with the values in place of the numbers."""
        self._check_fitted("inverse_transform")
        return ds.map_batches(self._decoded, batch_format="pyarrow")

    def _decoded(self, table: Any) -> Any:
        import pyarrow as pa

        places = column_of(table, self.output_column, "LabelEncoder").cast(pa.int64())
        values = pa.array(list(self.stats_[f"unique_values({self.label_column})"]))
        return each(
            table, [self.output_column], [self.label_column], lambda _: values.take(places)
        )


class Categorizer(_Encoder):
    """Columns of categories, as pandas has them. `dtypes` gives a column's categories, as a list
    or a CategoricalDtype; those of others are the values that `fit` finds."""

    def __init__(
        self,
        columns: Sequence[str],
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        self.output_columns = outputs_of(columns, output_columns, "Categorizer")
        self.columns = list(columns)
        self.dtypes = {
            name: list(getattr(kind, "categories", kind)) for name, kind in (dtypes or {}).items()
        }

    def _fit(self, dataset: Any) -> None:
        rest = [name for name in self.columns if name not in self.dtypes]
        counts = counted(dataset, rest, "Categorizer", allow_missing=True)
        known = {**{name: sorted(values, key=_place) for name, values in counts.items()},
                 **self.dtypes}  # fmt: skip
        self.stats_ = {
            f"unique_values({name})": {value: at for at, value in enumerate(known[name])}
            for name in self.columns
        }

    def _encoded(self, table: Any, name: str) -> Any:
        import pyarrow as pa

        places = self._numbers(table, name)
        kind = column_of(table, name, "Categorizer").type
        values = pa.array(list(self.stats_[f"unique_values({name})"])).cast(kind)
        if isinstance(places, pa.ChunkedArray):
            places = places.combine_chunks()
        return pa.DictionaryArray.from_arrays(places, values)
