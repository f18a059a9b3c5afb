"""Preprocessors that scale columns of numbers. `fit` has the columns in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.data.aggregate import Max, Mean, Min, Std
from holdfast.data.preprocessors.base import Preprocessor, outputs_of
from holdfast.data.preprocessors.columns import each, numbers, summed_up, without_nan
from holdfast.trial.errors import InvalidConfig


class _Scaler(Preprocessor):
    """(value - shift) / scale; a scale of 0 counts as 1."""

    def __init__(
        self, columns: Sequence[str], output_columns: Sequence[str] | None = None
    ) -> None:
        self.output_columns = outputs_of(columns, output_columns, type(self).__name__)
        self.columns = list(columns)

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        raise NotImplementedError

    def _transform_arrow(self, table: Any) -> Any:
        return each(
            table, self.columns, self.output_columns, lambda name: self._scaled(table, name)
        )

    def _scaled(self, table: Any, name: str) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = numbers(table, name, type(self).__name__)
        shift, scale = self._shift_and_scale(name)
        if shift is None or scale is None:  # a column without values
            return pa.nulls(table.num_rows, pa.float64())
        return pc.divide(pc.subtract(values, float(shift)), float(scale) or 1.0)


class StandardScaler(_Scaler):
    """Mean 0 and standard deviation 1. `stats_`: "mean(column)", "std(column)"."""

    def _fit(self, dataset: Any) -> None:
        aggregates = [one for name in self.columns for one in (Mean(name), Std(name, 0))]
        self.stats_ = summed_up(dataset, self.columns, aggregates)

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        return self.stats_[f"mean({column})"], self.stats_[f"std({column})"]


class MinMaxScaler(_Scaler):
    """From 0 to 1. `stats_`: "min(column)", "max(column)"."""

    def _fit(self, dataset: Any) -> None:
        aggregates = [one for name in self.columns for one in (Min(name), Max(name))]
        self.stats_ = summed_up(dataset, self.columns, aggregates)

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        least, most = self.stats_[f"min({column})"], self.stats_[f"max({column})"]
        return least, None if most is None else most - least


class MaxAbsScaler(_Scaler):
    """From -1 to 1, with 0 where it is. `stats_`: "abs_max(column)"."""

    def _fit(self, dataset: Any) -> None:
        aggregates = [one for name in self.columns for one in (Min(name), Max(name))]
        found = summed_up(dataset, self.columns, aggregates)
        self.stats_ = {
            f"abs_max({name})": None
            if found[f"max({name})"] is None
            else max(-found[f"min({name})"], found[f"max({name})"])
            for name in self.columns
        }

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        return 0.0, self.stats_[f"abs_max({column})"]


class RobustScaler(_Scaler):
    """Median 0, and the distance of two quantiles 1. `fit` reads the dataset once for each
    column, and has its values in memory. `stats_`: "low_quantile(column)", "median(column)",
    "high_quantile(column)"."""

    def __init__(
        self,
        columns: Sequence[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: Sequence[str] | None = None,
        quantile_precision: int = 800,
    ) -> None:
        super().__init__(columns, output_columns)
        self.quantile_range = (quantile_range[0], quantile_range[1])
        self.quantile_precision = quantile_precision

    def _fit(self, dataset: Any) -> None:
        import numpy as np
        import pyarrow as pa

        dataset.checked(self.columns, "fit()")
        low, high = self.quantile_range
        found: dict[str, Any] = {}
        for name in self.columns:
            parts = [without_nan(numbers(one, name, "fit()")) for one in dataset.tables()]
            chunks = [chunk for part in parts for chunk in part.chunks]
            values = pa.chunked_array(chunks, pa.float64())
            known = values.drop_null().to_numpy()
            # Of no values there are no quantiles.
            places = np.quantile(known, [low, 0.5, high]).tolist() if len(known) else [None] * 3
            names = ("low_quantile", "median", "high_quantile")
            found |= {f"{one}({name})": place for one, place in zip(names, places, strict=True)}
        self.stats_ = found

    def _shift_and_scale(self, column: str) -> tuple[float | None, float | None]:
        low, high = (self.stats_[f"{one}_quantile({column})"] for one in ("low", "high"))
        return self.stats_[f"median({column})"], None if low is None else high - low


_NORMS: Final = {"l1": 1, "l2": 2, "max": float("inf")}


class Normalizer(Preprocessor):
    """Each row's values in these columns, divided by their norm: "l1", "l2" or "max"."""

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        norm: str = "l2",
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        if norm not in _NORMS:
            raise InvalidConfig(f"Normalizer(norm={norm!r}) must be one of {', '.join(_NORMS)}")
        self.columns, self.norm = list(columns), norm
        self.output_columns = outputs_of(columns, output_columns, "Normalizer")

    def _transform_arrow(self, table: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        found = {name: numbers(table, name, "Normalizer").to_numpy() for name in self.columns}
        norms = np.linalg.norm(np.column_stack(list(found.values())), _NORMS[self.norm], axis=1)
        norms[norms == 0] = 1
        return each(
            table, self.columns, self.output_columns, lambda name: pa.array(found[name] / norms)
        )
