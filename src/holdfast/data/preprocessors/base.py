"""The base class of preprocessors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Any, ClassVar, Self

from holdfast.data.formats import NUMPY, PANDAS, PYARROW, as_arrow, formatted
from holdfast.data.methods.whole import Whole
from holdfast.exports import EXPORTS
from holdfast.trial.errors import InvalidConfig, TuneError

_FORMAT = 1


class PreprocessorNotFittedException(TuneError, RuntimeError):
    """`transform` was called before `fit`."""


class Fitted(StrEnum):
    """Whether a preprocessor can be used."""

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
        """Whether it has been fitted, or needs no fit."""
        if not self._is_fittable:
            return Fitted.NOT_FITTABLE
        return Fitted.FITTED if hasattr(self, "stats_") else Fitted.NOT_FITTED

    def fit(self, ds: Any) -> Self:
        """Take the numbers from a dataset: this reads it now, block by block.

        Raises InvalidConfig for an unknown column.
        """
        if not isinstance(ds, Whole):
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
            return again(found)
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


def again(found: Mapping[str, Any]) -> Preprocessor:
    """The preprocessor that `serialize` has described: of a class of this package, or of one that
    a script has defined, by name; nothing that the text names is imported."""
    name = found["type"]
    for home in EXPORTS["holdfast.data.preprocessors"]:
        import_module(home)  # it defines classes
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


def outputs_of(columns: Sequence[str], output_columns: Sequence[str] | None, name: str) -> Any:
    """The names of the results, by default those of the columns. Raises InvalidConfig."""
    if isinstance(columns, str) or not columns:
        raise InvalidConfig(f"{name}(columns={columns!r}) must be a list of names")
    if output_columns is None:
        return list(columns)
    if len(output_columns) != len(columns):
        raise InvalidConfig(
            f"{name}(output_columns=...) has {len(output_columns)} names for "
            f"{len(columns)} columns"
        )
    return list(output_columns)
