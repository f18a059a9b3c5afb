"""Functions of batches that methods of a dataset make: by row, by column, of a class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Self

from holdfast.data.columns import replaced, table_of
from holdfast.data.formats import PYARROW, Mapped, formatted, name_of, rows_in, rows_of
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig


class Constructed:
    """A class whose object is made in each process that calls it, at the first call."""

    def __init__(self, kind: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._how = (kind, tuple(args), dict(kwargs))
        self._made: Any = None
        self.__name__ = kind.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._made is None:
            kind, given, named = self._how
            self._made = kind(*given, **named)
        return self._made(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Constructed, self._how


def callable_of(
    fn: Any,
    caller: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A function, or one that makes an object of a class and calls that.

    Raises InvalidConfig for anything else.
    """
    if isinstance(fn, type):
        return Constructed(fn, args or (), kwargs or {})
    if not callable(fn):
        raise InvalidConfig(f"{caller}() needs a function of a batch, not {fn!r:.100}")
    if args or kwargs:
        raise InvalidConfig(
            f"{caller}(fn_constructor_args=...) is for a class, and {fn!r:.100} is a function"
        )
    function: Callable[..., Any] = fn
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRows:
    """A function of a row, which returns a row, as a function of a batch."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fn: Any,
        caller: str,
        fn_args: Sequence[Any] | None,
        fn_kwargs: Mapping[str, Any] | None,
        constructor_args: Sequence[Any] | None,
        constructor_kwargs: Mapping[str, Any] | None,
    ) -> Self:
        """The arguments of `caller`, a method of a dataset. Raises InvalidConfig as `callable_of`
        does."""
        return cls(
            function=callable_of(fn, caller, constructor_args, constructor_kwargs),
            arguments=tuple(fn_args or ()),
            keywords=dict(fn_kwargs or {}),
        )

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, batch: Any) -> Any:
        return rows_table(list(self.made(batch)), f"map({self.__name__})")

    def made(self, batch: Any) -> Iterator[Any]:
        for row in rows_in(batch):
            yield self.function(row, *self.arguments, **self.keywords)


def rows_table(rows: Sequence[Any], caller: str) -> Any:
    """A table of rows. Raises InvalidConfig if they are not dicts of the same keys."""
    names = list(rows[0]) if rows and isinstance(rows[0], Mapping) else []
    for row in rows:
        if not isinstance(row, Mapping) or set(row) != set(names):
            raise InvalidConfig(
                f"{caller} returned {row!r:.100}: return a dict with the keys {names} for each row"
                if names
                else f"{caller} returned a {type(row).__name__}: return a dict"
            )
    return table_of({name: [row[name] for row in rows] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Some columns, in this order, perhaps with other names."""

    names: Mapping[str, str]

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        return pa.table(
            [table.column(name) for name in self.names], names=list(self.names.values())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """The columns of a batch, and one that an expression of pyarrow gives."""

    column: str
    expression: Any

    def __call__(self, table: Any) -> Any:
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        columns = {name: pc.field(name) for name in table.column_names}
        found = ds.dataset(table.combine_chunks()).to_table(
            columns=columns | {self.column: self.expression}
        )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """The columns of a batch, and one that a function makes of it."""

    column: str
    function: Callable[..., Any]
    batch_format: str

    def __call__(self, table: Any) -> Any:
        made = self.function(formatted(table, self.batch_format))
        values = (
            made if isinstance(made, (Sequence, Mapping)) or hasattr(made, "__len__") else None
        )
        if values is None:
            values = [made] * table.num_rows  # one value for all rows
        if rows_of({self.column: values}) != table.num_rows:
            raise InvalidConfig(
                f"add_column({self.column!r}) returned {len(values)} values for "
                f"{table.num_rows} rows"
            )
        added = table_of({self.column: values}).column(0)
        return replaced(table, self.column, added)


def of_tables(function: Callable[[Any], Any]) -> Mapped:
    """A function of a pyarrow.Table for the list of a dataset's functions."""
    return Mapped(function=function, batch_size=None, batch_format=PYARROW)
