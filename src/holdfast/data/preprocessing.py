"""The preprocessors: fitted to a dataset, and applied to datasets and batches."""

from __future__ import annotations

import inspect
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

from holdfast.data.dataset import Dataset
from holdfast.data.rows import (
    NUMPY,
    PANDAS,
    PYARROW,
    array_of,
    as_arrow,
    concatenated,
    formatted,
    plain,
    replaced,
    unknown_column,
)
from holdfast.trial.errors import InvalidConfig, TuneError

_FORMAT: Final = 1
_STRATEGIES: Final = ("mean", "most_frequent", "constant")


class PreprocessorNotFittedException(TuneError, RuntimeError):
    """`transform` was called before `fit`."""


class Fitted(StrEnum):
    """The state of a preprocessor."""

    NOT_FITTABLE = "NOT_FITTABLE"
    NOT_FITTED = "NOT_FITTED"
    PARTIALLY_FITTED = "PARTIALLY_FITTED"
    FITTED = "FITTED"


class Preprocessor:
    """Columns made of other columns, with numbers (`stats_`) that `fit` takes from a dataset.

    For your own, set `stats_` in `_fit(dataset)`, or `_is_fittable = False`, and return a batch
    of the same rows from `_transform_pandas(frame)`, `_transform_numpy(arrays)` or
    `_transform_arrow(table)`.
    """

    _is_fittable: ClassVar[bool] = True
    FitStatus = Fitted
    stats_: dict[str, Any]

    def fit_status(self) -> Fitted:
        """The state: fitted, not fitted, or in no need of a fit."""
        if not self._is_fittable:
            return Fitted.NOT_FITTABLE
        return Fitted.FITTED if hasattr(self, "stats_") else Fitted.NOT_FITTED

    def fit(self, ds: Any) -> Self:
        """Take the numbers from a dataset: this reads it now, block by block.

        Raises InvalidConfig for an unknown column.
        """
        if not isinstance(ds, Dataset):
            raise InvalidConfig(
                f"{type(self).__name__}.fit() takes a Dataset, not a {type(ds).__name__}: "
                f"data.from_pandas(frame) makes one"
            )
        if self._is_fittable:
            self._fit(ds)
        return self

    def fit_transform(
        self,
        ds: Any,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Any:
        """`fit`, and then `transform`, of the same dataset."""
        return self.fit(ds).transform(ds, batch_size=transform_batch_size)

    def transform(
        self,
        ds: Any,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Any:
        """A dataset whose batches are transformed when they are needed.

        Raises PreprocessorNotFittedException.
        """
        self._check_fitted("transform")
        return self._transform(ds, batch_size)

    def transform_batch(self, data: Any) -> Any:
        """A transformed batch, in the format of the given one: a DataFrame, a dict of arrays or a
        pyarrow.Table. Raises PreprocessorNotFittedException."""
        self._check_fitted("transform_batch")
        return formatted(self._transform_table(as_arrow(data)), _format_of(data))

    def serialize(self) -> str:
        """The class, its arguments and `stats_` as JSON, for the metadata of a checkpoint.

        Raises InvalidConfig for values that JSON does not have, such as functions.
        """
        try:
            return json.dumps({"format": _FORMAT, **self._described()}, allow_nan=True)
        except (TypeError, ValueError) as error:
            raise InvalidConfig(
                f"{type(self).__name__} cannot be serialized: {error}. Pickle it instead"
            ) from error

    @staticmethod
    def deserialize(serialized: str | bytes) -> Preprocessor:
        """The preprocessor of a text that `serialize` returned. Raises InvalidConfig."""
        try:
            found = json.loads(serialized)
            if found["format"] != _FORMAT:
                raise ValueError(f"format {found['format']!r} is not known")
            return _again(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidConfig(
                f"deserialize() takes the text that serialize() returned: {error}"
            ) from error

    def get_input_columns(self) -> list[str]:
        """The columns that it reads."""
        return list(getattr(self, "columns", None) or ())

    def get_output_columns(self) -> list[str]:
        """The columns that it writes."""
        return list(getattr(self, "output_columns", None) or self.get_input_columns())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._arguments().items())
        return f"{type(self).__name__}({shown})"

    # -- what a class decides --

    def _fit(self, dataset: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs _fit(), or _is_fittable = False")

    def _transform_arrow(self, table: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs _transform_pandas()")

    def _transform(self, ds: Any, batch_size: int | None) -> Any:
        return ds.map_batches(self._transform_table, batch_size=batch_size, batch_format=PYARROW)

    def _transform_table(self, table: Any) -> Any:
        for name, kind in (("_transform_pandas", PANDAS), ("_transform_numpy", NUMPY)):
            function: Callable[[Any], Any] | None = getattr(self, name, None)
            if function is not None:
                return as_arrow(function(formatted(table, kind)))
        return self._transform_arrow(table)

    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments; attributes have their names."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def _described(self) -> dict[str, Any]:
        arguments = {name: _plain(value) for name, value in self._arguments().items()}
        stats = _pairs(self.stats_) if hasattr(self, "stats_") else None
        return {"type": type(self).__name__, "arguments": arguments, "stats": stats}

    @classmethod
    def _again(cls, found: Mapping[str, Any]) -> Preprocessor:
        """The inverse of `_described`."""
        made = cls(**found["arguments"])
        if found["stats"] is not None:
            made.stats_ = _unpaired(found["stats"])
        return made

    def _check_fitted(self, caller: str) -> None:
        if self.fit_status() not in (Fitted.FITTED, Fitted.NOT_FITTABLE):
            raise PreprocessorNotFittedException(
                f"{caller}() before fit(): call {type(self).__name__}.fit(dataset), or "
                f"fit_transform(dataset)"
            )


def _again(found: Mapping[str, Any]) -> Preprocessor:
    """The preprocessor that `serialize` has described: of a class of this module, or of one that
    a script has defined, by name; nothing that the text names is imported."""
    name = found["type"]
    kind = next((one for one in _kinds(Preprocessor) if one.__name__ == name), None)
    if kind is None:
        raise ValueError(f"the preprocessor {name!r} is not known")
    return kind._again(found)


def _kinds(kind: type[Preprocessor]) -> list[type[Preprocessor]]:
    return [found for one in kind.__subclasses__() for found in (one, *_kinds(one))]


def _pairs(stats: Any) -> Any:
    """Dicts as lists of pairs: keys of JSON are texts, and those of encoders are any values."""
    if isinstance(stats, Mapping):
        return {"pairs": [[key, _pairs(value)] for key, value in stats.items()]}
    return _plain(stats)


def _unpaired(stored: Any) -> Any:
    if isinstance(stored, dict):
        return {key: _unpaired(value) for key, value in stored["pairs"]}
    return stored


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    return value


def _format_of(data: Any) -> str:
    if hasattr(data, "iloc"):
        return PANDAS
    return NUMPY if isinstance(data, Mapping) else PYARROW


# -- column by column -----------------------------------------------------------------------------


class _ByColumn(Preprocessor):
    """Makes a column of each of `columns`, under the name at the same place of
    `output_columns`."""

    columns: list[str]
    output_columns: list[str]

    def __init__(
        self, columns: Sequence[str], output_columns: Sequence[str] | None = None
    ) -> None:
        name = type(self).__name__
        if isinstance(columns, str) or not columns:
            raise InvalidConfig(f"{name}(columns={columns!r}) must be a list of names")
        if output_columns is not None and len(output_columns) != len(columns):
            raise InvalidConfig(
                f"{name}(output_columns=...) has {len(output_columns)} names for "
                f"{len(columns)} columns"
            )
        self.columns = list(columns)
        self.output_columns = list(columns if output_columns is None else output_columns)

    @abstractmethod
    def _made(self, table: Any, name: str) -> Any:
        """The new column."""

    def _transform_arrow(self, table: Any) -> Any:
        made = [self._made(table, name) for name in self.columns]
        for output, column in zip(self.output_columns, made, strict=True):
            table = replaced(table, output, column)
        return table

    def _column(self, table: Any, name: str) -> Any:
        """Raises InvalidConfig for an unknown column."""
        if name not in table.column_names:
            raise unknown_column(name, table.column_names, type(self).__name__)
        return plain(table.column(name))

    def _numbers(self, column: Any, name: str) -> Any:
        """A column as floats. Raises InvalidConfig for other values."""
        import pyarrow as pa

        try:
            return column.cast(pa.float64())
        except pa.ArrowException as error:
            raise InvalidConfig(
                f"{type(self).__name__}: the column {name!r} has no numbers, but {column.type}"
            ) from error

    def _gathered(self, dataset: Dataset) -> dict[str, Any]:
        """These columns of all rows, in memory; NaN counts as missing."""
        import pyarrow as pa

        dataset.checked(self.columns, "fit()")
        tables = [
            pa.table({name: plain(table.column(name)) for name in self.columns})
            for table in dataset.tables()
        ]
        whole = concatenated(tables) if tables else dataset.schema().empty_table()
        return {name: _without_nan(whole.column(name)) for name in self.columns}

    def _counts(self, dataset: Dataset, *, allow_missing: bool) -> dict[str, Counter[Any]]:
        """The number of times that each value of these columns occurs.

        Raises InvalidConfig for missing values, and for values that are not plain.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        caller = type(self).__name__
        found = {}
        for name, column in self._gathered(dataset).items():
            if not allow_missing and column.null_count:
                raise InvalidConfig(
                    f"{caller}: the column {name!r} has missing values: use SimpleImputer before"
                )
            try:
                counts = pc.value_counts(column.drop_null())
                values, numbers = (counts.field(at).to_pylist() for at in (0, 1))
                found[name] = Counter(dict(zip(values, numbers, strict=True)))
            except (TypeError, NotImplementedError, pa.ArrowException) as error:
                raise InvalidConfig(
                    f"{caller}: the column {name!r} has the type {column.type}, not plain values"
                ) from error
        return found


def _without_nan(column: Any) -> Any:
    """NaN as a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


class _Scaler(_ByColumn):
    """(value - shift) / scale; a scale of 0 counts as 1."""

    @abstractmethod
    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        """None for a column without values."""

    def _made(self, table: Any, name: str) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self._numbers(self._column(table, name), name)
        shift, scale = self._shift_and_scale(name)
        if shift is None or scale is None:
            return pa.nulls(table.num_rows, pa.float64())
        return pc.divide(pc.subtract(values, float(shift)), float(scale) or 1.0)


class StandardScaler(_Scaler):
    """Mean 0 and standard deviation 1. `stats_`: "mean(column)", "std(column)"."""

    def _fit(self, dataset: Any) -> None:
        import pyarrow.compute as pc

        self.stats_ = {}
        for name, column in self._gathered(dataset).items():
            values = self._numbers(column, name)
            self.stats_[f"mean({name})"] = pc.mean(values).as_py()
            self.stats_[f"std({name})"] = pc.stddev(values).as_py()

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        return self.stats_[f"mean({column})"], self.stats_[f"std({column})"]


class MinMaxScaler(_Scaler):
    """From 0 to 1. `stats_`: "min(column)", "max(column)"."""

    def _fit(self, dataset: Any) -> None:
        import pyarrow.compute as pc

        self.stats_ = {}
        for name, column in self._gathered(dataset).items():
            self._numbers(column, name)
            found = pc.min_max(column).as_py()
            self.stats_ |= {f"{one}({name})": found[one] for one in ("min", "max")}

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        least, most = self.stats_[f"min({column})"], self.stats_[f"max({column})"]
        return least, None if most is None else most - least


class SimpleImputer(_ByColumn):
    """Missing values and NaN replaced by the column's mean, its most frequent value, or
    `fill_value` with the strategy "constant". `stats_`: "mean(column)" or
    "most_frequent(column)"."""

    def __init__(
        self,
        columns: Sequence[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        if strategy not in _STRATEGIES:
            raise InvalidConfig(
                f"SimpleImputer(strategy={strategy!r}) must be one of {', '.join(_STRATEGIES)}"
            )
        if (strategy == "constant") != (fill_value is not None):
            raise InvalidConfig("SimpleImputer(fill_value=...) goes with strategy='constant'")
        super().__init__(columns, output_columns)
        self.strategy, self.fill_value = strategy, fill_value

    def fit_status(self) -> Fitted:
        """The state; a constant needs no fit."""
        return Fitted.NOT_FITTABLE if self.strategy == "constant" else super().fit_status()

    def _fit(self, dataset: Any) -> None:
        import pyarrow.compute as pc

        if self.strategy == "mean":
            gathered = self._gathered(dataset).items()
            means = {name: pc.mean(self._numbers(column, name)) for name, column in gathered}
            self.stats_ = {f"mean({name})": mean.as_py() for name, mean in means.items()}
        elif self.strategy == "most_frequent":
            counts = self._counts(dataset, allow_missing=True)
            self.stats_ = {
                f"most_frequent({name})": _most_frequent(values) for name, values in counts.items()
            }
        else:
            self.stats_ = {}

    def _made(self, table: Any, name: str) -> Any:
        import pyarrow as pa

        column = _without_nan(self._column(table, name))
        value = self.fill_value
        if self.strategy != "constant":
            value = self.stats_[f"{self.strategy}({name})"]
        if value is None:
            raise InvalidConfig(f"SimpleImputer: fit() found no value in the column {name!r}")
        if self.strategy == "mean":
            column = column.cast(pa.float64())
        try:
            return column.fill_null(pa.scalar(value, column.type))
        except pa.ArrowException:
            return column.cast(pa.scalar(value).type).fill_null(value)


def _most_frequent(counts: Counter[Any]) -> Any:
    """The least of the most frequent values; None if there is no value."""
    most = max(counts.values(), default=0)
    return min((value for value, count in counts.items() if count == most), default=None)


class _Encoder(_ByColumn):
    """`stats_`: "unique_values(column)", a dict with a number for each value, in their order."""

    max_categories: Mapping[str, int] = {}

    def _fit(self, dataset: Any) -> None:
        found = {}
        for name, values in self._counts(dataset, allow_missing=False).items():
            ranked = sorted(values.items(), key=lambda one: (-one[1], _place(one[0])))
            kept = [value for value, _ in ranked[: self.max_categories.get(name)]]
            numbers = {value: at for at, value in enumerate(sorted(kept, key=_place))}
            found[f"unique_values({name})"] = numbers
        self.stats_ = found

    def _places(self, table: Any, name: str) -> Any:
        """The number of each value; missing for those that `fit` did not see."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(table, name)
        values = list(self.stats_[f"unique_values({name})"])
        return pc.index_in(column, value_set=pa.array(values).cast(column.type))

    def _made(self, table: Any, name: str) -> Any:
        import pyarrow as pa

        return self._places(table, name).cast(pa.int64())


def _place(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


class OrdinalEncoder(_Encoder):
    """A number for each value, in their order; a missing one for values that `fit` did not see."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        encode_lists: bool = True,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.encode_lists = encode_lists


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
        super().__init__(columns, output_columns)
        self.max_categories = dict(max_categories or {})

    def _made(self, table: Any, name: str) -> Any:
        import numpy as np
        import pyarrow as pa

        places = self._places(table, name).fill_null(-1).to_numpy()
        vectors = np.zeros((len(places), len(self.stats_[f"unique_values({name})"])), np.uint8)
        known = np.flatnonzero(places >= 0)
        vectors[known, places[known]] = 1
        return pa.FixedShapeTensorArray.from_numpy_ndarray(vectors)


class LabelEncoder(_Encoder):
    """A number for each value of one column, the label."""

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        self.label_column, self.output_column = label_column, output_column or label_column
        super().__init__([label_column], [self.output_column])

    def inverse_transform(self, ds: Any) -> Any:
        """A dataset with the values in place of the numbers."""
        self._check_fitted("inverse_transform")
        return ds.map_batches(self._decoded, batch_format=PYARROW)

    def _decoded(self, table: Any) -> Any:
        import pyarrow as pa

        places = self._column(table, self.output_column).cast(pa.int64())
        values = pa.array(list(self.stats_[f"unique_values({self.label_column})"]))
        return replaced(table, self.label_column, values.take(places))


# -- several columns, several preprocessors -------------------------------------------------------


class Concatenator(Preprocessor):
    """Columns of numbers and vectors as one column of vectors, in place of them.

    `columns`: their names, in order; otherwise those of `include` without `exclude`, by default
    all. Missing ones are left out, unless `raise_if_missing`.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | str | None = None,
    ) -> None:
        if columns is not None and (include is not None or exclude is not None):
            raise InvalidConfig("Concatenator() takes columns, or include and exclude")
        self.columns = None if columns is None else list(columns)
        self.output_column_name = output_column_name
        self.dtype = None if dtype is None else str(_dtype(dtype))
        self.raise_if_missing, self.flatten = raise_if_missing, flatten
        self.include = None if include is None else list(include)
        self.exclude = [exclude] if isinstance(exclude, str) else list(exclude or ())

    def get_output_columns(self) -> list[str]:
        """The one column that it writes."""
        return [self.output_column_name]

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "exclude": self.exclude or None}

    def _transform_arrow(self, table: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        names = self._names(table.column_names)
        parts = []
        for name in names:
            values = array_of(table.column(name))
            if values.dtype == object:
                raise InvalidConfig(f"Concatenator: the column {name!r} has no numbers")
            parts.append(values.reshape(len(values), -1))
        whole = np.concatenate(parts, axis=1)
        if self.dtype is not None:
            whole = whole.astype(self.dtype)
        column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(whole))
        return table.drop_columns(names).append_column(self.output_column_name, column)

    def _names(self, known: Sequence[str]) -> list[str]:
        """Raises InvalidConfig if there is none."""
        asked = self.columns if self.columns is not None else self.include
        if self.raise_if_missing:
            for name in [*(asked or ()), *self.exclude]:
                if name not in known:
                    raise unknown_column(name, known, "Concatenator()")
        names = [name for name in (known if asked is None else asked) if name in known]
        found = [name for name in names if name not in self.exclude]
        if not found:
            raise InvalidConfig(
                f"Concatenator() finds none of its columns: the dataset has {', '.join(known)}"
            )
        return found


def _dtype(dtype: Any) -> Any:
    import numpy as np

    return np.dtype(dtype)


class Chain(Preprocessor):
    """Several preprocessors, one after the other; each is fitted to what those before it make."""

    def __init__(self, *preprocessors: Preprocessor) -> None:
        self.preprocessors = preprocessors

    def fit_status(self) -> Fitted:
        """The common state, or PARTIALLY_FITTED."""
        found = {one.fit_status() for one in self.preprocessors} - {Fitted.NOT_FITTABLE}
        if not found:
            return Fitted.NOT_FITTABLE
        return found.pop() if len(found) == 1 else Fitted.PARTIALLY_FITTED

    def _fit(self, dataset: Any) -> None:
        for one in self.preprocessors[:-1]:
            dataset = one.fit_transform(dataset)
        if self.preprocessors:
            self.preprocessors[-1].fit(dataset)

    def fit_transform(self, ds: Any, **options: Any) -> Any:
        for one in self.preprocessors:
            ds = one.fit_transform(ds, **options)
        return ds

    def _transform(self, ds: Any, batch_size: int | None) -> Any:
        for one in self.preprocessors:
            ds = one.transform(ds, batch_size=batch_size)
        return ds

    def _transform_arrow(self, table: Any) -> Any:
        for one in self.preprocessors:
            table = one.transform_batch(table)
        return table

    def _described(self) -> dict[str, Any]:
        return {
            "type": type(self).__name__,
            "preprocessors": [one._described() for one in self.preprocessors],
        }

    @classmethod
    def _again(cls, found: Mapping[str, Any]) -> Chain:
        return cls(*map(_again, found["preprocessors"]))

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.preprocessors))})"
