"""Preprocessors that combine columns, functions and other preprocessors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.data.columns import array_of
from holdfast.data.errors import unknown_column
from holdfast.data.formats import as_arrow, format_of, formatted
from holdfast.data.preprocessors.base import Fitted, Preprocessor, again
from holdfast.trial.errors import InvalidConfig


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


class BatchMapper(Preprocessor):
    """A function of a batch, as `Dataset.map_batches` takes it."""

    _is_fittable = False

    def __init__(
        self,
        fn: Callable[[Any], Any],
        batch_format: str | None = "default",
        batch_size: int | str | None = "default",
    ) -> None:
        self.fn, self.batch_format, self.batch_size = fn, batch_format, batch_size

    def _transform(self, ds: Any, batch_size: int | None) -> Any:
        return ds.map_batches(
            self.fn,
            batch_size=self.batch_size if batch_size is None else batch_size,
            batch_format=self.batch_format,
        )

    def _transform_arrow(self, table: Any) -> Any:
        return as_arrow(self.fn(formatted(table, format_of(self.batch_format))))


class Chain(Preprocessor):
    """Several preprocessors, one after the other; each is fitted to what those before it make."""

    def __init__(self, *preprocessors: Preprocessor) -> None:
        self.preprocessors = preprocessors

    def fit_status(self) -> Fitted:
        """Whether all of them, some or none have been fitted."""
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
        return cls(*map(again, found["preprocessors"]))

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.preprocessors))})"
