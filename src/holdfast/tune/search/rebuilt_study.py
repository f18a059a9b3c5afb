"""Studies that create the library's object again for each question, with all known results.

Their answers depend only on the seed, the number of the question and the history, so they are the
same after a restore.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from statistics import fmean
from typing import Any, ClassVar

from threadpoolctl import threadpool_limits

from holdfast.dataclass import dataclass
from holdfast.scheduler.searchers.cube import varied
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.tune.search.study import Losses, Query, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedConfig:
    """A config and its result. `loss` is None while it runs, and if it failed; `others` are the
    losses of further metrics."""

    assignment: Assignment
    loss: float | None = None
    others: Losses = ()
    is_failed: bool = False


@dataclass(slots=True)
class RebuiltStudy(Study, ABC):
    """Keeps the results; a subclass asks its library.

    `searched` are the parameters with more than one value, `axes` their forms in the library.
    """

    who: ClassVar[str]
    """The name of the search."""
    nests: ClassVar[bool] = False
    """Whether the library knows parameters that exist only inside a choice."""

    parameters: Parameters
    searched: tuple[Parameter, ...] = field(init=False)
    axes: list[Any] = field(init=False)
    _known: dict[int, TriedConfig] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.searched = varied(self.parameters.all)
        if not self.nests:
            _check_flat(self.searched, self.who)
        self.axes = [self.axis(one) for one in self.searched]

    @abstractmethod
    def axis(self, parameter: Parameter) -> Any:
        """A parameter in the library's form. Raises InvalidSearchSpace if it has none."""

    @abstractmethod
    def answer(self, query: Query) -> Assignment | str | None:
        """As `Study.ask`; missing values are drawn at random."""

    def ask(self, query: Query) -> Assignment | str | None:
        answer = self.answer(query)
        if answer is None or isinstance(answer, str):
            return answer
        whole = self.whole(answer, query.seed)
        self.take(query, whole)
        return whole

    def take(self, query: Query, assignment: Assignment) -> None:
        self._known[query.number] = TriedConfig(assignment=assignment)

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        loss, *others = losses or (None,)
        self._known[query.number] = TriedConfig(
            assignment=assignment, loss=loss, others=tuple(others), is_failed=losses is None
        )

    @property
    def tried(self) -> list[TriedConfig]:
        """The configs in the order of the questions, whichever ended first."""
        return [self._known[number] for number in sorted(self._known)]

    @property
    def running(self) -> list[Assignment]:
        return [one.assignment for one in self.tried if one.loss is None and not one.is_failed]

    def measured(self, *, with_running: bool = False) -> list[tuple[Assignment, float]]:
        """Each config with its loss. Empty until one has succeeded.

        A failure has the loss of the worst, so that a model avoids its neighbourhood. With
        `with_running`, so has a running trial: the model then looks elsewhere (D. Ginsbourger, R.
        Le Riche, L. Carraro, "Kriging is well-suited to parallelize optimization", 2010).
        """
        losses = [one.loss for one in self.tried if one.loss is not None]
        if not losses:
            return []
        worst = max(losses)
        return [
            (one.assignment, worst if one.loss is None else one.loss)
            for one in self.tried
            if one.loss is not None or one.is_failed or with_running
        ]

    def by_point(
        self, placed: Callable[[Parameter, Any], Any], *, with_running: bool = False
    ) -> dict[tuple[Any, ...], float]:
        """`measured`, with each config as a point of `placed` values.

        Several configs on one point become one, with the mean of their losses, because a library
        may refuse a repeated point.
        """
        found: dict[tuple[Any, ...], list[float]] = {}
        for assignment, loss in self.measured(with_running=with_running):
            point = tuple(placed(one, assignment[one.name]) for one in self.searched)
            found.setdefault(point, []).append(loss)
        return {point: fmean(losses) for point, losses in found.items()}

    def whole(self, answer: Assignment, seed: int) -> Assignment:
        """`answer` completed with parameters that are not searched, and rounded to allowed
        values."""
        drawn = self.parameters.complete(answer, random.Random(seed))
        return self.parameters.fit(drawn, self.who)

    def at_random(self, seed: int) -> Assignment:
        return self.parameters.complete({}, random.Random(seed))


def _check_flat(searched: Sequence[Parameter], who: str) -> None:
    """Raises InvalidSearchSpace for a parameter that does not always exist."""
    for parameter in searched:
        if parameter.conditions:
            name, number = parameter.conditions[-1]
            raise InvalidSearchSpace(
                f"{parameter.name} exists only if {name} is its category number {number}, "
                f"which {who} does not support: move it out of the choice, or search with "
                f"HyperOptSearch, AxSearch, NevergradSearch, OptunaSearch or TuneBOHB"
            )


def one_thread() -> threadpool_limits:
    """Limit matrix libraries to one thread inside the block: for small matrices, several threads
    mostly wait for each other.

    With two cores that other processes used, too, a question to Ax took 1.1 s of one core instead
    of 5.8.
    """
    return threadpool_limits(limits=1)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """As `one_thread`, for torch."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
