"""The model of `AutoSearch`: which config to try next. Imported in the search's thread only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_finite, is_number
from holdfast.scheduler.events import Outlook
from holdfast.scheduler.searchers.cube import bounds, place, value_at, varied
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.trial.space import Categorical, Integer, Normal
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.gaussian_process import (
    NOISY,
    SMOOTH,
    Array,
    GaussianProcess,
    Kernel,
    log_expected_improvement,
)
from holdfast.tune.search.library import Losses, Query, Study, one_thread

# The first configs are spread over the space.
_SPREAD: Final = 8
# The model begins with as many results.
_LEAST_RESULTS: Final = 4
# How many points the model learns from at most, and how many running trials it knows.
_MOST_POINTS, _MOST_RUNNING = 150, 100
# Candidates: at random, near the best, and around the most promising ones, in rounds.
_RANDOM, _NEAR, _ROUNDS, _AROUND = 500, 500, 2, 100
# Steps of the first fit of a kernel, and of those that follow whenever the results have grown by
# this factor.
_FIRST_STEPS, _STEPS, _GROWTH = 40, 8, 1.05
# From config number 31 on, every fourth one is chosen with the prior's kernel: the fitted kernel
# may be overconfident, and then the search never leaves the neighbourhood of a good config.
_DOUBT_AFTER, _DOUBT = 30, 4
# A smaller expected gain is called little. In distances of the median loss from the best.
_LITTLE: Final = 2e-3
# Draws until the space is taken to have no new config.
_MOST_DRAWS: Final = 1000
_LAST: Final = 1.0 - 1e-9
# The share of a candidate's changed numbers that are the first or the last value: the best one
# often is, and a small step rarely leads there.
_AT_ENDS: Final = 0.1
# Whole numbers and steps with so few values are rounded for the model, as they are for a trial.
_FEW_VALUES: Final = 32
# How many results the model of the costs learns from at most: costs are smooth.
_MOST_COSTS: Final = 50
# With a smaller deviation of the logarithms, configs cost about the same, and what the model would
# learn is mostly chance.
_LEAST_COST_SPREAD: Final = 0.4
# Losses beyond are taken as this one, and smaller differences as none, so that no sum, difference
# or ratio of them overflows: a loss may be the largest float, as a penalty.
_LARGEST: Final = 1e100
_LEAST_SPREAD: Final = 1e-200
# The least number of pairs of reports that a line's slope is fitted to, and the most.
_LEAST_PAIRS, _MOST_PAIRS = 3, 50
# Reports at powers of this iteration are kept.
_RATIO: Final = 3


class Axes:
    """The parameters of a space as columns of an array: `vectors` with one column for each.

    A number is its place from 0 to 1, as is a category of a choice of numbers, by its order; any
    other category is its index. The value of a parameter that does not exist has no meaning.
    Parameters of the same name and domain in several categories of one choice share a column, so
    that what is learned in one is known in the others.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = parameters
        shared: dict[Any, int] = {}
        self._column = {
            one.name: shared.setdefault(_shared_name(one), len(shared)) for one in parameters
        }
        firsts = {self._column[one.name]: one for one in reversed(parameters)}
        self._firsts = [firsts[column] for column in range(len(shared))]
        self.orders = [_order(one) for one in self._firsts]
        self.sizes = np.array(
            [
                one.count if isinstance(one.domain, Categorical) and order is None else 0
                for one, order in zip(self._firsts, self.orders, strict=True)
            ]
        )
        self._levels = [
            _levels(one, order) for one, order in zip(self._firsts, self.orders, strict=True)
        ]
        ends = np.cumsum(np.maximum(self.sizes, 1))
        self.columns = [
            tuple(range(end - max(size, 1), end))
            for end, size in zip(map(int, ends), map(int, self.sizes), strict=True)
        ]

    def column(self, name: str) -> int:
        return self._column[name]

    def vector(self, assignment: Assignment) -> Array:
        found = np.full(len(self._firsts), 0.5)
        found[self.sizes > 0] = 0.0
        for one in self.parameters:
            if one.name in assignment:
                column = self._column[one.name]
                value, order = assignment[one.name], self.orders[column]
                if order is None:
                    found[column] = place(one, value)
                else:
                    found[column] = (order.index(value) + 0.5) / len(order)
        return found

    def assignment(self, vector: Array) -> Assignment:
        found: dict[str, Any] = {}
        for one in self.parameters:
            if one.exists_in(found):
                column = self._column[one.name]
                part, order = float(vector[column]), self.orders[column]
                if order is None:
                    found[one.name] = value_at(one, part)
                else:
                    found[one.name] = order[min(int(part * len(order)), len(order) - 1)]
        return found

    def draw(self, count: int, rng: np.random.Generator, *, at_ends: float = 0.0) -> Array:
        """Random vectors. A share `at_ends` of the numbers is the first or the last value: the
        best one often is, and a random one never."""
        places = rng.random((count, len(self._firsts)))
        numbers = self.sizes == 0
        wider = (places[:, numbers] - 0.5) / (1.0 - at_ends) + 0.5
        places[:, numbers] = np.clip(wider, 0.0, _LAST)
        return self.of_cube(places)

    def of_cube(self, vectors: Array) -> Array:
        """The vectors at uniform places of the unit cube."""
        chosen = self.sizes > 0
        vectors[:, chosen] = np.floor(vectors[:, chosen] * self.sizes[chosen])
        return vectors

    def near(self, vectors: Array, widths: Any, rng: np.random.Generator) -> Array:
        """Each vector with some of its values changed: at least one, on average two or a third."""
        count, size = vectors.shape
        changed = rng.random(vectors.shape) < max(2 / size, 0.3)
        changed[np.arange(count), rng.integers(0, size, count)] = True
        moved = vectors + rng.normal(size=vectors.shape) * widths
        # Reflected at the ends, as clipped ones would gather there.
        moved = np.abs(moved)
        moved = np.clip(np.where(moved > 1.0, 2.0 - moved, moved), 0.0, _LAST)
        at_ends = rng.random(vectors.shape) < _AT_ENDS
        moved = np.where(at_ends, np.where(rng.random(vectors.shape) < 0.5, 0.0, _LAST), moved)
        chosen = self.sizes > 0
        others = np.floor(rng.random((count, int(chosen.sum()))) * self.sizes[chosen])
        moved[:, chosen] = np.where(rng.random(others.shape) < 0.5, others, vectors[:, chosen])
        return np.where(changed, moved, vectors)

    def points(self, vectors: Array) -> Array:
        """The vectors as the kernel sees them: rounded, with a column for each category, and in
        the middle where a parameter does not exist."""
        exists = self._exist(vectors)
        found = np.zeros((len(vectors), sum(map(len, self.columns))))
        for i, columns in enumerate(self.columns):
            values = vectors[:, i]
            if self.sizes[i]:
                rows = np.flatnonzero(exists[:, i])
                found[rows, columns[0] + values[rows].astype(int)] = math.sqrt(0.5)
                continue
            if (levels := self._levels[i]) is not None:
                values = levels[np.abs(values[:, None] - levels).argmin(axis=1)]
            found[:, columns[0]] = np.where(exists[:, i], values, 0.5)
        return found

    def _exist(self, vectors: Array) -> Any:
        exists = np.zeros(vectors.shape, dtype=bool)
        for one in self.parameters:
            here: Any = True
            for parent, number in one.conditions:
                at = self._column[parent]
                here = here & exists[:, at] & (vectors[:, at].astype(int) == number)
            exists[:, self._column[one.name]] |= here
        return exists


def _shared_name(parameter: Parameter) -> tuple[Any, ...]:
    """What parameters in several categories of one choice have in common."""
    name, domain = parameter.name, parameter.domain
    if not parameter.conditions:
        return (name,)
    (parent, number), outer = parameter.conditions[-1], parameter.conditions[:-1]
    return (parent, name.removeprefix(f"{parent}:{number}"), repr(domain), outer)


def _order(parameter: Parameter) -> list[int] | None:
    """The categories of a choice of numbers in their order; None if it is none."""
    if not isinstance(parameter.domain, Categorical) or parameter.count < 3:
        return None
    values = [unwrap_scalar(one) for one in parameter.domain.categories]
    if not all(map(is_finite, values)):
        return None
    return sorted(range(len(values)), key=values.__getitem__)


def _levels(parameter: Parameter, order: Sequence[int] | None) -> Array | None:
    """The places of a parameter with few values."""
    if order is not None:
        return (np.arange(len(order)) + 0.5) / len(order)
    domain = parameter.domain
    if isinstance(domain, (Categorical, Normal)):
        return None
    step = domain.q or (1 if isinstance(domain, Integer) else 0)
    low, high = bounds(domain)
    if not step or (high - low) / step >= _FEW_VALUES:
        return None
    count = round((high - low) / step) + 1
    return np.array([place(parameter, parameter.fit(low + i * step)) for i in range(count)])


@dataclass(slots=True, kw_only=True)
class Tried:
    """A config, and what it has reported: its last `losses`, None while it runs and if it failed,
    and in `steps` those at some iterations and at the `newest` one.

    `is_early`: a scheduler has stopped it. `took_s` is the time that it has trained once it has
    ended, `cost` the logarithm of that per iteration; None if it has not reported.
    """

    vector: Array
    took_s: float = 0.0
    cost: float | None = None
    steps: dict[int, Losses] = field(default_factory=dict)
    newest: int = 0
    losses: Losses | None = None
    is_ended: bool = False
    is_early: bool = False

    def saw(self, step: int, losses: Losses) -> None:
        if self.newest and not _is_kept(self.newest):
            self.steps.pop(self.newest, None)
        self.newest = step
        self.steps[step] = losses


def _is_kept(step: int) -> bool:
    """True for powers of the ratio: so few reports of a long course are kept."""
    while step > 1 and step % _RATIO == 0:
        step //= _RATIO
    return step == 1


class Reports:
    """Reports of trials as rows of arrays: the `numbers` of the trials, the iterations (`steps`),
    and the losses, a column for each metric, NaN if the trial failed. `are_last` marks the last
    report of each course that no scheduler has cut short; with `only_last` there are no others.
    """

    def __init__(self, tried: Sequence[Tried], metrics: int, *, only_last: bool) -> None:
        failed = (math.nan,) * metrics
        rows: list[tuple[int, int, Losses, bool]] = []
        for number, one in enumerate(tried):
            is_whole = one.is_ended and not (one.is_early and one.steps)
            if not only_last:
                rows += [
                    (number, step, losses, False)
                    for step, losses in one.steps.items()
                    if not (is_whole and step == one.newest)
                ]
            if is_whole:
                rows.append((number, one.newest, one.losses or failed, True))
        numbers, steps, losses, are_last = zip(*rows, strict=True)
        self.numbers, self.steps = np.array(numbers), np.array(steps)
        self.losses, self.are_last = np.array(losses), np.array(are_last)


class Trend:
    """Predicts the loss at the `longest` iteration from a loss at an earlier one, by a line for
    each iteration: `slope * loss + shift`.

    Each line is composed of those between iterations at which reports are kept. Without them, the
    early reports of good trials would be as bad as the last ones of bad trials.
    """

    def __init__(self, reports: Reports, longest: int) -> None:
        known, self._at = np.unique(reports.steps, return_inverse=True)
        self._reports = reports
        self._places = np.array([math.log(max(step, 1)) for step in known.tolist()])
        self._end = math.log(longest)
        steps = sorted({step for step in known.tolist() if _is_kept(step)} | {longest})
        metrics = reports.losses.shape[1]
        table = np.full((len(steps), int(reports.numbers.max()) + 1, metrics), math.nan)
        for row, step in zip(table, steps, strict=True):
            here = reports.steps == step
            row[reports.numbers[here]] = reports.losses[here]
        slopes, shifts = [np.ones(metrics)], [np.zeros(metrics)]
        for row, later in reversed(list(pairwise(table))):
            both = ~np.isnan(row + later).any(axis=1)
            slope, shift = _line(np.stack([row[both], later[both]], axis=1))
            shifts.append(slopes[-1] * shift + shifts[-1])
            slopes.append(slopes[-1] * slope)
        self._steps = np.log(steps)
        self._slopes, self._shifts = np.array(slopes[::-1]), np.array(shifts[::-1])

    def shares(self) -> Array:
        """The place of each report on the way to the longest iteration, from 0 to 1."""
        found: Array = np.where(self._reports.are_last, 1.0, self._places[self._at] / self._end)
        return found

    def at_end(self) -> Array:
        """The losses that are expected at the end after each of the reports."""
        seen = self._reports.losses
        expected = seen * self._lines(self._slopes) + self._lines(self._shifts)
        found: Array = np.where(self._reports.are_last[:, None], seen, expected)
        return found

    def _lines(self, terms: Array) -> Array:
        found = np.stack([np.interp(self._places, self._steps, term) for term in terms.T], axis=1)
        return found[self._at]


def _line(pairs: Array) -> tuple[Array, Array]:
    """The slope, from 0 to 1, and the shift of the line through pairs of losses, for each metric:
    medians, as P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau" (1968).
    """
    slopes, shifts = np.ones(pairs.shape[2]), np.zeros(pairs.shape[2])
    for i, (before, after) in enumerate(pairs.transpose(2, 1, 0)):
        best = np.argsort(before)[:_MOST_PAIRS]
        before, after = before[best], after[best]
        across = before[:, None] - before
        there = across > 0
        if len(best) >= _LEAST_PAIRS and there.any():
            gained = (after[:, None] - after)[there] / across[there]
            slopes[i] = min(max(float(np.median(gained)), 0.0), 1.0)
        if len(best):
            shifts[i] = np.median(after - slopes[i] * before)
    return slopes, shifts


class Costs:
    """A Gaussian process over configs that expects their `Tried.cost`.

    Costs count less and less as the `budget_s` is used up, and nothing at its end: E. H. Lee, V.
    Perrone, C. Archambeau, M. Seeger, "Cost-aware Bayesian Optimization" (2020).
    """

    def __init__(self, axes: Axes, budget_s: float) -> None:
        self._axes, self._budget_s = axes, budget_s
        self._workers = 1
        self._weight = 1.0
        self._kernels = [prior.kernel(axes.columns) for prior in (SMOOTH, NOISY)]
        self._process: GaussianProcess | None = None
        self._spread = 0.0

    def fit(self, tried: Sequence[Tried]) -> None:
        """Learn from the trials so far."""
        running = sum(not one.is_ended for one in tried)
        self._workers = max(self._workers, running + 1)
        used_s = sum(one.took_s for one in tried)
        self._weight = max(1.0 - used_s / self._workers / self._budget_s, 0.0)
        known = [one for one in tried if one.cost is not None]
        if len(known) < _LEAST_RESULTS:
            return
        kept = np.linspace(0, len(known) - 1, min(len(known), _MOST_COSTS)).astype(int)
        points = self._axes.points(np.stack([known[at].vector for at in kept]))
        costs = np.array([known[at].cost for at in kept])
        self._spread = float(costs.std())
        if self._spread < _LEAST_COST_SPREAD:
            self._process = None
            return
        values = (costs - costs.mean()) / self._spread
        steps = _FIRST_STEPS if self._process is None else _STEPS
        self._kernels = [kernel.fit(points, values, steps=steps) for kernel in self._kernels]
        self._process = GaussianProcess(_likelier(self._kernels), points, values)

    def predict(self, vectors: Array) -> Array:
        """The expected costs, apart from a number that all have in common."""
        if self._process is None:
            return np.zeros(len(vectors))
        return self._weight * self._spread * self._process.means(self._axes.points(vectors))


class AutoStudy(Study):
    """A Gaussian process over configs and iterations. If the run has a time budget, a second one
    expects what a config costs, and the most improvement per second comes first.

    All that it knows follows from the calls and their order, so that it continues after a restore
    as if it had not ended.
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        seed: int = 0,
        grids: Collection[str] = (),
        metrics: int = 1,
        budget_s: float | None = None,
    ) -> None:
        self._parameters = parameters
        self._metrics = metrics
        self._axes = Axes(varied(parameters.all))
        self._grids = [
            (self._axes.column(one.name), one.count)
            for one in self._axes.parameters
            if one.name in grids
        ]
        self._offsets = np.random.default_rng(seed).random(len(self._axes.columns))
        self._tried: dict[int, Tried] = {}
        self._known: set[tuple[Any, ...]] = set()
        size = sum(map(len, self._axes.columns))
        axes = [*self._axes.columns, (size,)]
        # Categories without an order have no nearness: what is rugged would look like noise.
        priors = (SMOOTH,) if self._axes.sizes.all() else (SMOOTH, NOISY)
        self._kernels = [prior.kernel(axes) for prior in priors]
        self._kernel = self._kernels[0]
        self._costs = None if budget_s is None else Costs(self._axes, budget_s)
        self._results = 0
        self._fitted = 0  # the number of results that the kernel has seen
        # Courses are compared only if some end early: else all end at the same iteration.
        self._uses_steps = False

    # -- what has happened ---------------------------------------------------------------------

    def take(self, query: Query, assignment: Assignment) -> None:
        self._tried[query.number] = Tried(vector=self._axes.vector(assignment))
        self._known.add(_key(assignment))

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        self._tried[query.number].saw(max(step, 1), _bounded(losses))

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        tried = self._tried[query.number]
        tried.losses = None if losses is None else _bounded(losses)
        tried.is_ended, tried.is_early = True, query.pruned
        tried.took_s, tried.cost = _cost(query.row)
        self._uses_steps |= query.pruned
        self._results += losses is not None
        if self._results >= max(_LEAST_RESULTS, _GROWTH * self._fitted, self._fitted + 1):
            steps = _STEPS if self._fitted else _FIRST_STEPS
            self._fitted = self._results
            data = self._data(np.random.default_rng(query.seed))
            with one_thread():
                self._kernels = [
                    kernel.fit(data.points, data.values, steps=steps) for kernel in self._kernels
                ]
                if self._costs is not None:
                    self._costs.fit(list(self._tried.values()))
            self._kernel = _likelier(self._kernels)

    # -- what comes next -----------------------------------------------------------------------

    def ask(self, query: Query) -> Assignment | str:
        rng = np.random.default_rng(query.seed)
        fixed = self._combination(query.number)
        if len(self._tried) < _SPREAD or not self._fitted:
            ranked = self._spread(query.number, fixed)
        else:
            with one_thread():
                ranked = self._improving(fixed, rng)
        for vector in chain(ranked, self._drawn(fixed, rng)):
            answer = self._axes.assignment(vector)
            if _key(answer) not in self._known:
                whole = self._parameters.complete(answer, rng)
                self.take(query, whole)
                return whole
        return FINISHED

    def _combination(self, number: int) -> dict[int, float]:
        """The values of the grids in turn, the first one fastest."""
        found = {}
        for column, count in self._grids:
            number, index = divmod(number, count)
            ordered = self._axes.orders[column]
            found[column] = (index + 0.5) / count if ordered is not None else float(index)
        return found

    def _drawn(self, fixed: dict[int, float], rng: np.random.Generator) -> Iterator[Array]:
        for _ in range(_MOST_DRAWS):
            yield _with(self._axes.draw(1, rng), fixed)[0]

    def _spread(self, number: int, fixed: dict[int, float]) -> Array:
        """The point with this number of a sequence that fills the cube evenly: M. Roberts, "The
        Unreasonable Effectiveness of Quasirandom Sequences" (2018)."""
        size = len(self._offsets)
        base = 2.0
        for _ in range(40):
            base = (1.0 + base) ** (1.0 / (size + 1))
        parts = (self._offsets + number * base ** -np.arange(1.0, size + 1)) % 1.0
        return _with(self._axes.of_cube(parts[None, :]), fixed)

    def _improving(self, fixed: dict[int, float], rng: np.random.Generator) -> Array:
        """Vectors, those with the highest expected improvement, or that per second, first."""
        data = self._data(rng)
        count = len(self._tried)
        doubts = count > _DOUBT_AFTER and count % _DOUBT == 0
        kernel = self._kernel
        if doubts:
            kernel = kernel.prior.kernel(kernel.axes)
        process = GaussianProcess(kernel, data.points, data.values)
        running = [one.vector for one in self._tried.values() if self._is_unseen(one)]
        if running:
            points = self._whole(np.stack(running[-_MOST_RUNNING:]))
            expected = process.means(points)
            process = GaussianProcess(
                kernel,
                np.vstack([data.points, points]),
                np.concatenate([data.values, expected]),
                variance=process.variance,
            )
        means = process.means(self._whole(data.vectors))
        best = float(means.min())
        good = data.vectors[np.argsort(means)[:10]]

        def improvement(vectors: Array) -> Array:
            return log_expected_improvement(*process.predict(self._whole(vectors)), best)

        def worth(vectors: Array) -> Array:
            costs = 0.0 if self._costs is None else self._costs.predict(vectors)
            return improvement(vectors) - costs

        widths = 10 ** rng.uniform(-2.5, -0.5, (_NEAR, 1))
        around = self._axes.near(good[rng.integers(0, len(good), _NEAR)], widths, rng)
        even = self._axes.draw(_RANDOM // 2, rng)
        outer = self._axes.draw(_RANDOM // 2, rng, at_ends=0.5)
        found = _with(np.vstack([even, outer, around]), fixed)
        worths = worth(found)
        for turn in range(_ROUNDS):
            top = np.argsort(-worths)[:20]
            centers = np.repeat(found[top[:5]], _AROUND // 5, axis=0)
            nearer = _with(self._axes.near(centers, 0.05 * 0.4**turn, rng), fixed)
            found = np.vstack([found[top], nearer])
            worths = np.concatenate([worths[top], worth(nearer)])
        ranked: Array = found[np.argsort(-worths)[:20]]
        if self._metrics == 1 and kernel is self._kernel:
            self._expect(data.scale, best, math.exp(float(improvement(ranked[:1])[0])))
        return ranked

    def _expect(self, scale: _Scale, best: float, gain: float) -> None:
        gain *= scale.unit
        self.outlook = Outlook(
            best=scale.zero + best * scale.unit,
            gain=gain,
            is_little=gain < _LITTLE * scale.spread,
        )

    # -- the data ------------------------------------------------------------------------------

    def _whole(self, vectors: Array) -> Array:
        """The points of trials that train to their end."""
        return np.hstack([self._axes.points(vectors), np.ones((len(vectors), 1))])

    def _is_unseen(self, tried: Tried) -> bool:
        """True for a running trial of which the model has no report."""
        return not tried.is_ended and not (tried.steps and self._uses_steps)

    def _data(self, rng: np.random.Generator) -> _Data:
        tried = list(self._tried.values())
        reports = Reports(tried, self._metrics, only_last=not self._uses_steps)
        losses, shares = reports.losses, np.ones(len(reports.losses))
        if self._uses_steps:
            trend = Trend(reports, max(2, *(one.newest for one in tried)))
            losses, shares = trend.at_end(), trend.shares()
        values, scale = _standardized(losses, _weights(self._metrics, rng))
        kept = np.arange(len(values))
        if len(values) > _MOST_POINTS:
            order = np.argsort(values, kind="stable")
            half = _MOST_POINTS // 2
            others = rng.choice(order[half:], _MOST_POINTS - half, replace=False)
            kept = np.concatenate([order[:half], others])
        vectors = np.stack([tried[number].vector for number in reports.numbers[kept]])
        return _Data(
            vectors=vectors,
            points=np.hstack([self._axes.points(vectors), shares[kept, None]]),
            values=values[kept],
            scale=scale,
        )


@dataclass(slots=True, kw_only=True)
class _Data:
    """What the model learns from: vectors, their points with the share of the course, and the
    standardized losses."""

    vectors: Array
    points: Array
    values: Array
    scale: _Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Converts values of the model to losses: loss = `zero` + `unit` * value. `spread` is the
    distance of the median loss from the best. With several metrics, those of the first one."""

    zero: float
    unit: float
    spread: float


def _weights(metrics: int, rng: np.random.Generator) -> Array:
    """A weight for each metric, in the mean that the next config improves."""
    return rng.dirichlet(np.ones(metrics)) if metrics > 1 else np.ones(1)


def _standardized(losses: Array, weights: Array) -> tuple[Array, _Scale]:
    """The rows of losses as values with a mean of 0 and a deviation of 1.

    From the best to the median they are as they are, above at most twice the median's distance
    from the best; a failure, a row of NaN, is worst. Several metrics become one as ParEGO does it.
    """
    is_known = ~np.isnan(losses).any(axis=1)
    known = losses[is_known]
    least = known.min(axis=0)
    spread = np.maximum(np.median(known, axis=0) - least, _LEAST_SPREAD)
    parts = np.minimum((known - least) / spread, 2.0)
    if len(weights) == 1:
        merged = parts[:, 0]
    else:
        weighted = parts * weights
        merged = weighted.max(axis=1) + 0.05 * weighted.sum(axis=1)
    values = np.full(len(losses), float(merged.max()))
    values[is_known] = merged
    mean, deviation = float(values.mean()), float(values.std())
    deviation = deviation if deviation > 1e-12 else 1.0
    first = float(spread[0])
    scale = _Scale(zero=float(least[0]) + first * mean, unit=first * deviation, spread=first)
    return (values - mean) / deviation, scale


def _likelier(kernels: Sequence[Kernel]) -> Kernel:
    return min(kernels, key=lambda kernel: kernel.loss)


def _cost(row: Mapping[str, Any]) -> tuple[float, float | None]:
    """The seconds of training, and the logarithm of those per iteration."""
    seconds, iterations = row.get("time_total_s"), row.get("training_iteration")
    if not (is_number(seconds) and is_number(iterations)):
        return 0.0, None
    if not (0 < seconds < math.inf and 1 <= iterations < math.inf):
        return 0.0, None
    return seconds, math.log(seconds / iterations)


def _bounded(losses: Losses) -> Losses:
    return tuple(min(max(loss, -_LARGEST), _LARGEST) for loss in losses)


def _with(vectors: Array, fixed: dict[int, float]) -> Array:
    for column, value in fixed.items():
        vectors[:, column] = value
    return vectors


def _key(assignment: Assignment) -> tuple[Any, ...]:
    return tuple(sorted(assignment.items()))
