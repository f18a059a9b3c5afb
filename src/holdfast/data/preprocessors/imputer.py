"""A preprocessor that fills in missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.data.aggregate import Mean
from holdfast.data.preprocessors.base import Fitted, Preprocessor, outputs_of
from holdfast.data.preprocessors.columns import column_of, counted, each, summed_up, without_nan
from holdfast.trial.errors import InvalidConfig

_STRATEGIES: Final = ("mean", "most_frequent", "constant")


class SimpleImputer(Preprocessor):
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
        self.output_columns = outputs_of(columns, output_columns, "SimpleImputer")
        self.columns, self.strategy, self.fill_value = list(columns), strategy, fill_value

    def fit_status(self) -> Fitted:
        """Whether it has been fitted; a constant needs no fit."""
        return Fitted.NOT_FITTABLE if self.strategy == "constant" else super().fit_status()

    def _fit(self, dataset: Any) -> None:
        if self.strategy == "mean":
            self.stats_ = summed_up(dataset, self.columns, [Mean(name) for name in self.columns])
        elif self.strategy == "most_frequent":
            counts = counted(dataset, self.columns, "SimpleImputer", allow_missing=True)
            self.stats_ = {
                f"most_frequent({name})": _most_frequent(values) for name, values in counts.items()
            }
        else:
            self.stats_ = {}

    def _transform_arrow(self, table: Any) -> Any:
        return each(
            table, self.columns, self.output_columns, lambda name: self._filled(table, name)
        )

    def _filled(self, table: Any, name: str) -> Any:
        import pyarrow as pa

        column = without_nan(column_of(table, name, "SimpleImputer"))
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
