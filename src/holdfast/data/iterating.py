"""Iteration over rows: shared by a dataset and a rank's part of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.data.errors import check_batch_size
from holdfast.data.formats import format_of, formatted, rows_in
from holdfast.data.order import Shuffle
from holdfast.dataclass import dataclass
from holdfast.plain_numbers import made_of_numbers, takes_numbers
from holdfast.trial.errors import InvalidConfig

_ROWS_AT_ONCE = 256


@made_of_numbers
@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlan:
    """One pass over the rows.

    `made` converts a batch, after the dataset's functions, to the loop's value; with `row_by_row`
    the loop gets the items of that.

    Raises InvalidConfig.
    """

    batch_size: int | None
    made: Callable[[Any], Any]
    drop_last: bool = False
    row_by_row: bool = False
    prefetch: int = 1
    buffer: int | None = None
    seed: int | None = None
    is_light: bool = False

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size, or_none=True)
        if type(self.prefetch) is not int or self.prefetch < 0:
            raise InvalidConfig(f"prefetch_batches={self.prefetch!r} must be 0 or more")
        if self.buffer is not None and (type(self.buffer) is not int or self.buffer < 1):
            raise InvalidConfig(
                f"local_shuffle_buffer_size={self.buffer!r} must be a number of rows, or None"
            )
        if self.seed is not None and type(self.seed) is not int:
            raise InvalidConfig(
                f"local_shuffle_seed={self.seed!r} must be a whole number, or None"
            )

    def shuffle(self, of_all: Shuffle | None) -> Shuffle | None:
        """The dataset's shuffling, or one within the loop's own window."""
        if of_all is not None or self.buffer is None:
            return of_all
        return Shuffle(seed=abs(self.seed or 0), window=self.buffer)


class Passes:
    """An iterable that starts one pass for each `for`."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class Iterating(ABC):
    """Iterable by rows and by batches."""

    @abstractmethod
    def passes(self, plan: PassPlan) -> Iterable[Any]:
        """The result of the `iter_` methods: each `iter()` of it reads the rows again."""

    @abstractmethod
    def schema(self) -> Any:
        """A pyarrow.Schema: `names` and `types` of the columns."""

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Each row as a dict of Python values: lists for lists, and arrays for arrays."""
        return self.passes(
            PassPlan(batch_size=_ROWS_AT_ONCE, made=rows_in, row_by_row=True, prefetch=0)
        )

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Batches of `batch_size` rows, the last one smaller; with None one per block.

        `batch_format`: "numpy" (a dict of arrays, read-only if they are views of the data; the
        default), "pandas" or "pyarrow". A thread prepares `prefetch_batches` ahead if that takes
        time. `local_shuffle_buffer_size` shuffles rows within windows of that many rows in each
        epoch, after `random_shuffle` of the dataset.

        Raises InvalidConfig; DatasetGone when it reaches a missing file.
        """
        made = partial(formatted, wanted=format_of(batch_format))
        plan = PassPlan(
            batch_size=batch_size,
            made=made,
            drop_last=drop_last,
            prefetch=prefetch_batches,
            buffer=local_shuffle_buffer_size,
            seed=local_shuffle_seed,
            is_light=True,
        )
        return self.passes(plan)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[dict[str, Any]], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Like `iter_batches`, with a dict of tensors, or the result of `collate_fn` for the
        arrays.

        `dtypes`: a torch dtype, or one for each column whose type should change. `device`: "auto"
        is the rank's own. The tensors are copies, so a loop may write to them.

        Raises InvalidConfig like `iter_batches`, and for an unknown column or one that cannot be a
        tensor; ImportError if PyTorch is not installed.
        """
        from holdfast.data.tensors import check_columns, to_tensors

        if collate_fn is not None and dtypes is not None:
            raise InvalidConfig("a collate_fn makes its own tensors: omit dtypes")
        if isinstance(dtypes, Mapping):
            check_columns(dtypes, self.schema().names)
        made = partial(
            to_tensors,
            dtypes=dtypes,
            device=device,
            collate=collate_fn,
            pins=pin_memory,
        )
        plan = PassPlan(
            batch_size=batch_size,
            made=made,
            drop_last=drop_last,
            prefetch=prefetch_batches,
            buffer=local_shuffle_buffer_size,
            seed=local_shuffle_seed,
            is_light=collate_fn is None,
        )
        return self.passes(plan)

    @takes_numbers
    def to_tf(
        self,
        feature_columns: str | Sequence[str],
        label_columns: str | Sequence[str],
        *,
        additional_columns: str | Sequence[str] = (),
        prefetch_batches: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Any:
        """A tf.data.Dataset of (features, labels) in batches; with `additional_columns` of three.

        One name gives a tensor, a list of names a dict of tensors. The rows are only this rank's,
        and the dataset's options keep TensorFlow from splitting them again.

        Raises InvalidConfig for an unknown column or one that cannot be a tensor; ImportError if
        TensorFlow is not installed.
        """
        from holdfast.data.tensorflow import to_tf

        check_batch_size(batch_size)
        batches = self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )
        return to_tf(batches, self.schema(), feature_columns, label_columns, additional_columns)
