"""One rank's part of a dataset: epoch after epoch, resumable in the middle of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from holdfast.data.batches import Rows, ahead, batched, count_of, pieces
from holdfast.data.dealing import left_of, share
from holdfast.data.formats import Mapped, mapped
from holdfast.data.iterating import Iterating, Passes, PassPlan
from holdfast.data.order import Order, Shuffle
from holdfast.data.sources import Source
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig


class _Whole(Protocol):
    """The methods of a dataset that its parts use."""

    @property
    def source(self) -> Source: ...
    @property
    def shuffle(self) -> Shuffle | None: ...
    @property
    def maps(self) -> tuple[Mapped, ...]: ...
    def exact(self, rows: int | None = None) -> Self: ...
    def schema(self) -> Any: ...
    def part(self, start: int, stop: int) -> Self: ...
    def materialize(self) -> Self: ...


D = TypeVar("D", bound=_Whole)

_JUDGED = 256


@dataclass(slots=True, kw_only=True, eq=False)
class _Epoch:
    """The position in an epoch: earlier shares, and what each rank has taken since.

    `order` is how rows were shuffled when it was begun.
    """

    number: int
    dealt: tuple[tuple[int, int], ...] = ()
    taken: int = 0
    order: dict[str, Any] | None = None
    is_under_way: bool = False


class DataIterator(Iterating, Generic[D]):
    """The result of `train.get_dataset_shard` for a Dataset: the rows of one rank of `ranks`.

    Every `for` over its batches is the next epoch, unless `set_epoch` sets another. If rows are
    shuffled, each epoch has its own order. The ranks' parts of an epoch have equally many rows: if
    the rows are not a multiple of the ranks, some ranks get their last row twice; with `drop_last`
    some rows are left out instead.

    `state_dict()`, for a checkpoint, has the number of rows that all ranks have got in this epoch,
    without those fetched ahead. After `load_state_dict` the next `for` continues there, and the
    rest of the epoch is split among the current ranks. All ranks must take equally many batches of
    one size before a checkpoint.
    """

    def __init__(self, dataset: D, rank: int, ranks: int) -> None:
        self._dataset = dataset.exact(_JUDGED)
        self._rank, self._ranks = rank, ranks
        self._rows = sum(self._dataset.source.sizes)
        self._epoch = _Epoch(number=0)

    @property
    def epoch(self) -> int:
        """The number of the current epoch, or of the next one."""
        return self._epoch.number

    def set_epoch(self, epoch: int) -> None:
        """Let the next `for` read this epoch, or its rest if a state was loaded."""
        now = self._epoch
        if epoch != now.number or now.is_under_way:
            self._epoch = _Epoch(number=epoch)

    def state_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; the same for all ranks that are in step."""
        now = self._epoch
        dealt = [*now.dealt, (self._ranks, now.taken)] if now.taken else list(now.dealt)
        return {
            "epoch": now.number,
            "rows": self._rows,
            "dealt": [list(one) for one in dealt],
            "order": now.order if dealt else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at the state in the next `for`, also with another number of ranks.

        Raises InvalidConfig for the state of a dataset of another size, and for an invalid state.
        """
        if not isinstance(state, Mapping) or not {"epoch", "rows", "dealt", "order"} <= set(state):
            raise InvalidConfig(
                f"load_state_dict() takes the result of state_dict() of a shard, not "
                f"{state!r:.100}"
            )
        if state["rows"] != self._rows:
            raise InvalidConfig(
                f"this state is of a dataset with {state['rows']} rows, but this one has "
                f"{self._rows}: pass the dataset with which the training began"
            )
        dealt = tuple((ranks, taken) for ranks, taken in state["dealt"])
        self._epoch = _Epoch(number=state["epoch"], dealt=dealt, order=state["order"])

    def schema(self) -> Any:
        return self._dataset.schema()

    def count(self) -> int:
        """The number of this rank's rows in a whole epoch, with repeated ones."""
        return sum(stop - start for start, stop in share(left_of(self._rows, ()), *self._place))

    def materialize(self) -> D:
        """This rank's part as a dataset in memory, each row once."""
        start, stop = self._rank * self._rows, (self._rank + 1) * self._rows
        return self._dataset.part(start // self._ranks, stop // self._ranks).materialize()

    @property
    def _place(self) -> tuple[int, int]:
        return self._rank, self._ranks

    def passes(self, plan: PassPlan) -> Iterable[Any]:
        return Passes(partial(self._pass, plan))

    def _pass(self, plan: PassPlan) -> Iterator[Any]:
        shuffle = plan.shuffle(self._dataset.shuffle)
        now = self._begin(shuffle)
        for rows, made in self._found(plan, shuffle, now):
            if plan.row_by_row:
                for row in made:
                    now.taken += 1
                    yield row
            else:
                now.taken += rows
                yield made
        if self._epoch is now:
            self._epoch = _Epoch(number=now.number + 1)

    def _begin(self, shuffle: Shuffle | None) -> _Epoch:
        """Begin or continue an epoch. Raises InvalidConfig if it would continue in another
        order."""
        now = self._epoch
        if now.is_under_way:
            now = _Epoch(number=now.number + 1)
        order = None if shuffle is None else shuffle.as_json()
        if now.dealt and order != now.order:
            raise InvalidConfig(
                f"epoch {now.number} started with the order {now.order} and would continue with "
                f"{order}, so that rows would be seen twice: shuffle with the same seed and "
                f"buffer size as before, or begin an epoch with set_epoch()"
            )
        self._epoch = replace(now, order=order, is_under_way=True)
        return self._epoch

    def _found(
        self, plan: PassPlan, shuffle: Shuffle | None, now: _Epoch
    ) -> Iterator[tuple[int, Any]]:
        source = self._dataset.source
        order = Order.of(source.sizes, shuffle, now.number)
        left = left_of(self._rows, now.dealt)
        own = share(left, *self._place, pads=not plan.drop_last)
        read = pieces(source, order, own)
        if source.is_slow:
            read = ahead(read, min(plan.prefetch, 1))
        batches = batched(read, plan.batch_size, drop_last=plan.drop_last)
        maps = self._dataset.maps
        made = map(partial(_made, plan, maps), batches)
        # A thread is only worth it if there is something to wait for.
        return made if plan.is_light and not maps else ahead(made, plan.prefetch)


def _made(plan: PassPlan, maps: Sequence[Mapped], rows: Rows) -> tuple[int, Any]:
    return count_of(rows), plan.made(mapped(maps, rows))
