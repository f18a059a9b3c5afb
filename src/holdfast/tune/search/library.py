"""The base of search algorithms that use a library.

An adapter is a subclass of `LibrarySearch` with the parameters that its users know, and a `Study`.
It creates the study in the search's own thread, the only one that imports the library.
"""

from __future__ import annotations

import json
import logging
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from statistics import fmean
from typing import Any, ClassVar, Final, Protocol, Self

from holdfast import searcher_files
from holdfast.dataclass import dataclass
from holdfast.described import Call, Construction
from holdfast.lazy import Framework
from holdfast.plain_numbers import is_finite
from holdfast.scheduler.events import Outlook
from holdfast.scheduler.searchers.cube import varied
from holdfast.scheduler.searchers.searcher import Searcher, points_of
from holdfast.schema import Count, UnreadableRecord, decode, to_fields
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.metrics import has_metric, lookup, near_text
from holdfast.trial.search_space.parameters import (
    Assignment,
    Parameter,
    Parameters,
    Same,
    inside,
)
from holdfast.trial.space import Categorical, check_called, same
from holdfast.trial.values import unwrap_scalar

Losses = tuple[float, ...]
_SIGNS: Final = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One config to try.

    `number` counts from 0, including points that were tried elsewhere. `seed` (32 bits) depends on
    the search's seed and the number: a study that draws only from it answers the same after a
    restore. `trial_id` is "" for a point that was tried elsewhere. `pruned`: the trial was stopped
    early. `is_given`: the user has answered it, not the library. `row`: the last report of a trial
    that has ended.
    """

    number: int
    seed: int
    trial_id: str = ""
    is_given: bool = False
    pruned: bool = False
    row: Mapping[str, Any] = field(default_factory=dict)


class Study(Protocol):
    """A library's part of one search. All calls come from one thread. A class that derives from it
    ignores `take` and `saw` unless it defines them.

    Values of an assignment are those of `Parameter.domain`, category numbers for choices. Smaller
    losses are better; there is one for each metric.
    """

    outlook: Outlook | None = None
    """Its expectations as of its last answer, in losses; None if it has no model."""

    def ask(self, query: Query) -> Assignment | str | None:
        """The next config; None for "not now", `Searcher.FINISHED` for "no more".

        Parameters that do not exist are left out, and values are rounded to allowed ones.
        """

    def take(self, query: Query, assignment: Assignment) -> Assignment | None:
        """Take note of an answer by the user, or by `ask` before a restore.

        Returns another answer to use instead, or None.
        """
        return None

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        """A trial has reported `losses` at the `training_iteration` `step`."""
        return None

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        """A trial has ended with `losses` in its last report; None for a failure."""


class AssignmentCodec(Protocol):
    """Converts configs to assignments and back: see `Parameters`."""

    def config(self, assignment: Assignment) -> dict[str, Any]: ...
    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment: ...
    def fit(self, assignment: Assignment, who: str) -> Assignment: ...
    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGoal:
    """The goal: each metric with its mode, "min" or "max"."""

    metrics: tuple[str, ...]
    modes: tuple[str, ...]

    def losses(self, row: Mapping[str, Any]) -> Losses | None:
        """The losses of a report; None if a metric is missing, not finite or not a number."""
        return self.losses_of([lookup(row, metric) for metric in self.metrics])

    def losses_of(self, values: Sequence[Any]) -> Losses | None:
        if not all(is_finite(unwrap_scalar(value)) for value in values):
            return None
        return tuple(
            _SIGNS[mode] * float(value) for mode, value in zip(self.modes, values, strict=True)
        )


_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """A trial's values, as an assignment, and its losses; None if it failed."""

    # Anything in a mapping: a search of the user's own objects may have some.
    values: Any
    losses: Sequence[float] | None
    pruned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSearch:
    """`searcher` is the name of its class, `suggested` how many configs it has suggested."""

    version: Count = _VERSION
    searcher: str
    suggested: Count
    ended: Sequence[EndedTrial]

    @classmethod
    def of(cls, state: Any, searcher: str) -> Self:
        """Raises InvalidConfig for the state of another class, and for anything else."""
        if not isinstance(state, Mapping) or "searcher" not in state:
            raise InvalidConfig(f"this is not a state that {searcher}.get_state() has returned")
        if state["searcher"] != searcher:
            raise InvalidConfig(
                f"this is the state of {state['searcher']!r:.60}, and not of {searcher}"
            )
        if state.get("version") != _VERSION:
            raise InvalidConfig(f"a newer version of holdfast has saved this {searcher}")
        try:
            found: Self = decode(cls, dict(state))
            if not all(isinstance(one.values, Mapping) for one in found.ended):
                raise UnreadableRecord("a trial has no values")
        except UnreadableRecord as error:
            raise InvalidConfig(f"the saved state of {searcher} is damaged") from error
        return found


def written(state: Mapping[str, Any], searcher: str) -> bytes:
    """Raises InvalidConfig for values that JSON does not have."""
    try:
        return json.dumps(state, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidConfig(
            f"{searcher} cannot be saved, because its configs have values other than text and "
            f"numbers ({error}): use get_state() and set_state()"
        ) from error


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """Raises InvalidConfig for anything but JSON."""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise InvalidConfig(
            f"{name} was not written by holdfast's save(): it is not JSON. Nothing of it was "
            f"loaded"
        ) from error
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentParameter(Parameter):
    """Exists where each parameter in `when` has one of these categories."""

    when: tuple[tuple[str, frozenset[int]], ...] = ()

    def exists_in(self, assignment: Assignment) -> bool:
        return all(assignment.get(name) in numbers for name, numbers in self.when)


class FlatParameters(Parameters):
    """Parameters by name, each after those on which it depends. A name such as `net/width` is the
    place in a nested config. A value that is fixed is a choice of one category.

    Raises InvalidSearchSpace for a name that occurs twice, and if there are none.
    """

    def __init__(self, parameters: Sequence[Parameter], *, who: str) -> None:
        self.all = tuple(parameters)
        self._by_name = {one.name: one for one in self.all}
        if not self.all:
            raise InvalidSearchSpace(f"space has nothing that {who} could search")
        if len(self._by_name) < len(self.all):
            names = [one.name for one in self.all]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidSearchSpace(f"{twice}: space has two parameters of this name")

    def config(self, assignment: Assignment) -> dict[str, Any]:
        return nested(
            (one.name, _value(one, assignment[one.name]))
            for one in self.all
            if one.name in assignment
        )

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return nested((n, value) for n, value in self._values(config, "") if n in self._by_name)

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same = same) -> Assignment:
        found = {}
        for name, value in self._values(config, ""):
            if name not in self._by_name:
                known = ", ".join(map(repr, self._by_name))
                raise InvalidSearchSpace(
                    f"{label}: {name} is not in the search space, only {known}"
                )
            found[name] = _read(self._by_name[name], unwrap_scalar(value), label, alike)
        return found

    def _values(self, config: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
        """The values of a nested config under their names."""
        for key, value in config.items():
            here = inside(name, key)
            if isinstance(value, Mapping) and here not in self._by_name:
                yield from self._values(value, here)
            else:
                yield here, value


def nested(named: Any) -> dict[str, Any]:
    """A config with each value at the place that its name says: `net/width` inside `net`."""
    config: dict[str, Any] = {}
    for name, value in named:
        *path, last = name.split("/")
        place = config
        for key in path:
            place = place.setdefault(key, {})
        place[last] = value
    return config


def fixed(value: Any) -> Categorical:
    """A choice of nothing else."""
    return Categorical(categories=(value,))


def _value(parameter: Parameter, value: Any) -> Any:
    domain = parameter.domain
    return domain.categories[value] if isinstance(domain, Categorical) else value


def _read(parameter: Parameter, value: Any, label: str, alike: Same) -> Any:
    domain = parameter.domain
    if not isinstance(domain, Categorical):
        if not isinstance(value, bool) and domain.is_valid(value):
            return value
        raise InvalidSearchSpace(f"{label}: {parameter.name}: {value!r:.100} is not in {domain}")
    equal = [number for number, one in enumerate(domain.categories) if alike(one, value)]
    # 1 and True are equal.
    exact = [number for number in equal if type(domain.categories[number]) is type(value)]
    if equal:
        return (exact or equal)[0]
    raise InvalidSearchSpace(
        f"{label}: {parameter.name}: {value!r:.100} is not one of its categories"
    )


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
    """True if the library knows parameters that exist only inside a choice."""

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


def one_thread() -> AbstractContextManager[Any]:
    """Limit matrix libraries to one thread inside the block: for small matrices, several threads
    mostly wait for each other.

    With two cores that other processes used, too, a question to Ax took 1.1 s of one core instead
    of 5.8.
    """
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limited


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


_log = logging.getLogger(__name__)


class LibrarySearch(Searcher, ABC):
    """Base of the search algorithms over libraries.

    `space`: a dict of domains like `param_space`; default: the Tuner's. `metric`, `mode`: the
    goal; default: the TuneConfig's. `points_to_evaluate`: the first configs; missing values are
    drawn at random. `evaluated_rewards`: the metric's values for these points, which then do not
    run. `seed`: a whole number makes the answers reproducible.

    The value of a trial is the metric in its last report. A trial that failed, or whose last
    report lacks the metric or has NaN or infinity there, is passed on as a failure. If no report
    had the metric, the end of a trial that did not fail is an error.

    Raises ImportError if the library is missing, InvalidConfig.
    """

    library: ClassVar[Framework | None] = None
    needs_trust: ClassVar[str] = "passes its arguments to a library"
    takes_many_metrics: ClassVar[bool] = False
    # So many trials may run at once.
    _most: float = math.inf
    look_ahead: float = 1 / 8
    """See `Searcher.look_ahead`: the model lacks the results of all trials that run, and those
    suggested ahead add one eighth to them."""

    def __init__(
        self,
        space: Any = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self._check_library()
        super().__init__(metric=metric, mode=mode)
        if seed is not None and not isinstance(seed, int):
            raise InvalidConfig(f"seed must be a whole number, not {seed!r}")
        self.seed: int | None = seed
        self._space = space
        self._points = points_of(points_to_evaluate)
        self._evaluated: list[EvaluatedPoint] = []
        self._run: SearchRun | None = None
        self._restored: Mapping[str, Any] | None = None  # see `set_state`
        if evaluated_rewards is not None:
            self._take_rewards(evaluated_rewards)

    def _limit_to(self, most: int, name: str, *, least: int = 1) -> None:
        """Let so many trials run at once, 0 for no limit. Raises InvalidConfig."""
        if type(most) is not int or most < least:
            raise InvalidConfig(f"{name} must be a whole number from {least} on, not {most!r}")
        self._most = most or math.inf

    def _check_library(self) -> None:
        if self.library is not None:
            self.library.check()

    @abstractmethod
    def open_study(self, parameters: Any, goal: SearchGoal, seed: int) -> Study:
        """The library's study of `parameters`, which `read_space` returned.

        Called once for each `fit()`, in the search's thread; `seed` is below 2**32. Raises
        InvalidSearchSpace, naming the parameter, for what the library cannot express.
        """

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        """The parameters of `space`. `is_own`: it was passed to the search, not the Tuner."""
        if self.library is not None:
            check_native(space, self._name, self.library)
        if is_own:
            check_called(space, "space")
        return Parameters(space, who=self._name, named=not is_own)

    def _searched(self, config: Mapping[str, Any]) -> Any:
        """The parameters of its own space, or of the Tuner's, as `read_space` returns them."""
        is_own = self._space is not None
        return self.read_space(self._space if is_own else config, is_own=is_own)

    # -- suggestions and results ----------------------------------------------------------------

    def check_space(self, metric: str | None, mode: str | None, config: Mapping[str, Any]) -> Any:
        goal = self._goal(self.metric or metric, self.mode or mode)
        terms = self._searched(config)
        points = [
            terms.assignment(point, f"points_to_evaluate[{i}]", same)
            for i, point in enumerate(self._points)
        ]
        return goal, terms, points

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        self._check_library()  # a restore may run where it is missing
        goal, terms, points = self.check_space(metric, mode, config)
        seed = self.seed if self.seed is not None else int(spec.get("seed", 0))
        study = self.open_study(terms, goal, int(random.Random(seed).random() * 2**32))
        self._run = SearchRun(goal=goal, terms=terms, study=study, seed=seed, points=points)
        for evaluated in self._evaluated:
            self._tell_evaluated(evaluated)
        if self._restored is not None:
            self._tell_restored(SavedSearch.of(self._restored, self._name))
        return self._space is None

    @property
    def outlook(self) -> Outlook | None:
        run = self._opened
        expected = run.study.outlook
        if expected is None:
            return None
        return replace(expected, best=_SIGNS[run.goal.modes[0]] * expected.best)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        run = self._opened
        if len(run.asked) >= self._most:
            return None
        query = run.query(trial_id)
        if query.is_given:
            rng = random.Random(f"{run.seed}/{query.number}")
            point = run.terms.complete(run.points[run.suggested], rng)
            return run.terms.config(run.take(query, point))
        answer = run.study.ask(query)
        if answer is None or isinstance(answer, str):
            return answer
        assignment = run.terms.fit(answer, self._name)
        run.note(query, assignment)
        return run.terms.config(assignment)

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        run = self._opened
        query = run.query(trial_id)
        try:
            assignment = run.read(config, f"trial {trial_id}", f"the search of trial {trial_id}")
        except InvalidSearchSpace as error:
            _log.warning("%s does not get a trial of another space: %s", self._name, error)
            run.skip()
        else:
            run.take(query, assignment)

    def take_added(self, trial_id: str, config: dict[str, Any]) -> bool:
        run = self._opened
        try:
            assignment = run.read(config, f"trial {trial_id}", f"the config of trial {trial_id}")
        except InvalidSearchSpace:
            return False
        given = run.suggested  # an added config takes the place of none of `points_to_evaluate`
        run.take(replace(run.query(trial_id), is_given=False), assignment)
        run.suggested = given
        return True

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        run = self._opened
        run.is_seen = run.is_seen or _has_all(result, run.goal.metrics)
        losses = run.goal.losses(result)
        if losses is not None and trial_id in run.asked:
            step = int(result.get("training_iteration", 0))
            run.study.saw(run.asked[trial_id][0], step, losses)

    def on_trial_pruned(self, trial_id: str) -> None:
        run = self._opened
        if trial_id in run.asked:
            query, assignment = run.asked[trial_id]
            run.asked[trial_id] = (replace(query, pruned=True), assignment)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        run = self._opened
        if trial_id not in run.asked:
            return
        if result is not None and not error:
            self._check_known(run, result)
        query, assignment = run.asked.pop(trial_id)
        losses = None if error or result is None else run.goal.losses(result)
        run.tell(replace(query, row=result or {}), assignment, losses)

    # -- what was tried elsewhere ---------------------------------------------------------------

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Pass on a config that was tried elsewhere, before `fit()`.

        Parameters that are not searched are ignored. With several metrics `value` is a list, and
        `intermediate_values` cannot be given. Raises InvalidConfig after `fit()` has begun.
        """
        if self._run is not None:
            raise InvalidConfig("call add_evaluated_point() before fit()")
        values = None if error else tuple(_listed(value))
        steps = tuple(intermediate_values or ())
        self._evaluated.append(
            EvaluatedPoint(config=dict(parameters), values=values, pruned=pruned, steps=steps)
        )

    def _take_rewards(self, rewards: Sequence[Any]) -> None:
        if len(rewards) != len(self._points):
            raise InvalidConfig(
                f"evaluated_rewards must have one value for each of points_to_evaluate: it has "
                f"{len(rewards)} for {len(self._points)}"
            )
        for point, reward in zip(self._points, rewards, strict=True):
            self.add_evaluated_point(point, reward)
        self._points = []

    def _tell_evaluated(self, evaluated: EvaluatedPoint) -> None:
        run, label = self._opened, "a point that was tried elsewhere"
        query = run.query(pruned=evaluated.pruned)
        assignment = run.read(run.terms.known(evaluated.config), label, label)
        metrics = run.goal.metrics
        if evaluated.values is not None and len(evaluated.values) != len(metrics):
            raise InvalidConfig(
                f"{label} needs {len(metrics)} values, of {', '.join(metrics)}; it has "
                f"{len(evaluated.values)}"
            )
        if evaluated.steps and len(metrics) > 1:
            raise InvalidConfig(
                f"{label} cannot have intermediate_values of {', '.join(metrics)}: leave them out"
            )
        losses = None if evaluated.values is None else run.goal.losses_of(evaluated.values)
        assignment = run.take(query, assignment)
        for step, value in enumerate(evaluated.steps, start=1):
            seen = run.goal.losses_of([value])
            if seen is not None:
                run.study.saw(query, step, seen)
        run.tell(query, assignment, losses)

    def construction(self) -> Construction:
        """With the points that were added after construction."""
        construction = super().construction()
        first = len(construction.argument("evaluated_rewards") or ())
        return replace(construction, calls=tuple(one.call() for one in self._evaluated[first:]))

    # -- for scripts that keep a search themselves ----------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Plain data: the trials that have ended, and how many points were suggested. The rest is
        in the arguments of the constructor."""
        run = self._run
        if run is None:
            return dict(
                self._restored
                or to_fields(SavedSearch(searcher=self._name, suggested=0, ended=[]))
            )
        saved = SavedSearch(searcher=self._name, suggested=run.suggested, ended=run.ended)
        return to_fields(saved)

    def set_state(self, state: dict[str, Any]) -> None:
        """Learn from the trials of `state` when `fit()` begins, and continue the points where it
        ended. Raises InvalidConfig."""
        SavedSearch.of(state, self._name)
        self._run, self._restored = None, state

    def save(self, checkpoint_path: Any) -> None:
        """Write `get_state()` to a file, as JSON. Raises OSError; InvalidConfig for objects."""
        searcher_files.write(checkpoint_path, written(self.get_state(), self._name))

    def restore(self, checkpoint_path: Any) -> None:
        """`set_state` of what `save` has written, before `fit()`. Nothing is unpickled.

        Raises OSError, InvalidConfig.
        """
        self.set_state(parsed(searcher_files.read(checkpoint_path), str(checkpoint_path)))

    def restore_from_dir(self, checkpoint_dir: Any) -> None:
        """As `Searcher.restore_from_dir`. In the folder of an experiment without such a file, it
        learns from the trials of the experiment."""
        try:
            super().restore_from_dir(checkpoint_dir)
        except FileNotFoundError:
            from holdfast.results.result_grid import ExperimentAnalysis

            analysis = ExperimentAnalysis(searcher_files.within(checkpoint_dir, ""))
            metric = self.metric or analysis.default_metric
            if not isinstance(metric, str):
                raise InvalidConfig(
                    f"{self._name}(metric=...) must name the metric to learn from"
                ) from None
            self.add_evaluated_trials(analysis, metric)

    def _tell_restored(self, saved: SavedSearch) -> None:
        run = self._opened
        for one in saved.ended:
            query = run.query(pruned=one.pruned)
            assignment = run.take(query, run.terms.fit(one.values, "the saved state"))
            if one.losses is not None and len(one.losses) != len(run.goal.metrics):
                raise InvalidConfig(f"the saved state of {self._name} has other metrics")
            run.tell(query, assignment, None if one.losses is None else tuple(one.losses))
        run.points = run.points[saved.suggested :]

    # -- the rest -------------------------------------------------------------------------------

    @property
    def own_space(self) -> Any:
        """The `space` that was passed to it; None if it searches the Tuner's."""
        return self._space

    def __getstate__(self) -> dict[str, Any]:
        """The state after construction: what a run has learned is in its journal."""
        return {**self.__dict__, "_run": None}

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _opened(self) -> SearchRun:
        if self._run is None:
            raise InvalidConfig(f"{self._name} must be passed to a Tuner")
        return self._run

    def _goal(
        self, metric: str | Sequence[str] | None, mode: str | Sequence[str] | None
    ) -> SearchGoal:
        metrics, modes = _listed(metric), _listed(mode)
        name = self._name
        if not metrics or not modes:
            raise InvalidConfig(
                f"{name} needs a metric to optimize: TuneConfig(metric=..., mode='min') or "
                f"{name}(metric=..., mode='min')"
            )
        if len(metrics) != len(modes):
            raise InvalidConfig(f"{name} needs one mode for each metric: {metrics}, {modes}")
        if len(metrics) > 1 and not self.takes_many_metrics:
            raise InvalidConfig(f"{name} optimizes one metric, not {', '.join(metrics)}")
        return SearchGoal(metrics=metrics, modes=modes)

    def _check_known(self, run: SearchRun, row: Mapping[str, Any]) -> None:
        run.is_seen = run.is_seen or _has_all(row, run.goal.metrics)
        if not run.is_seen:
            absent = [metric for metric in run.goal.metrics if not has_metric(row, metric)]
            raise InvalidConfig(
                f"{self._name} searches by {', '.join(map(repr, absent))}: a trial has "
                f"ended, and none has reported it.{near_text(absent, row)} Correct the name"
            )


def _listed(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _has_all(row: Mapping[str, Any], metrics: Sequence[str]) -> bool:
    return all(has_metric(row, metric) for metric in metrics)


def _looks_same(one: object, other: object) -> bool:
    """True if two values are equal; the user's objects are compared by their contents."""
    import cloudpickle

    if same(one, other):
        return True
    return type(one) is type(other) and cloudpickle.dumps(one) == cloudpickle.dumps(other)


def check_native(space: Any, who: str, library: Framework, name: str = "") -> None:
    """Raises InvalidSearchSpace, naming the key, for a parameter in the library's own types.

    It would be taken for a fixed value and never be searched.
    """
    if type(space).__module__.partition(".")[0] == library.module:
        raise InvalidSearchSpace(
            f"{name or 'space'} is a {type(space).__name__} of {library.title}: {who} searches "
            f"tune's own domains. Write tune.uniform(0, 1), tune.randint(0, 9), tune.choice([...])"
        )
    for key, part in _parts(space):
        check_native(part, who, library, inside(name, key))


def _parts(space: Any) -> list[tuple[Any, Any]]:
    if isinstance(space, Mapping):
        return list(space.items())
    if isinstance(space, Categorical):
        space = space.categories
    return list(enumerate(space)) if isinstance(space, (list, tuple)) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedPoint:
    """A config that was tried elsewhere; `values` is None if it failed."""

    config: Mapping[str, Any]
    values: tuple[Any, ...] | None
    pruned: bool = False
    steps: tuple[float, ...] = ()

    def call(self) -> Call:
        """The call that adds it."""
        failed = self.values is None
        more = {"error": failed, "pruned": self.pruned, "intermediate_values": list(self.steps)}
        return "add_evaluated_point", (dict(self.config), list(self.values or ())), more


@dataclass(slots=True, kw_only=True)
class SearchRun:
    """The state of one `fit()`. Only the journal stores it."""

    goal: SearchGoal
    terms: AssignmentCodec
    study: Study
    seed: int
    points: list[Assignment]
    number: int = 0
    suggested: int = 0
    is_seen: bool = False
    asked: dict[str, tuple[Query, Assignment]] = field(default_factory=dict)
    ended: list[EndedTrial] = field(default_factory=list)

    def read(self, config: Mapping[str, Any], label: str, who: str) -> Assignment:
        """The whole assignment of a config. Raises InvalidSearchSpace."""
        return self.terms.fit(self.terms.assignment(config, label, _looks_same), who)

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        self.study.tell(query, assignment, losses)
        plain = None if losses is None else [*losses]
        self.ended.append(EndedTrial(values=assignment, losses=plain, pruned=query.pruned))

    def query(self, trial_id: str = "", *, pruned: bool = False) -> Query:
        seed = int(random.Random(f"{self.seed}/{self.number}").random() * 2**32)
        return Query(
            number=self.number,
            seed=seed,
            trial_id=trial_id,
            is_given=not trial_id or self.suggested < len(self.points),
            pruned=pruned,
        )

    def take(self, query: Query, assignment: Assignment) -> Assignment:
        assignment = self.study.take(query, assignment) or assignment
        self.note(query, assignment)
        return assignment

    def skip(self) -> None:
        self.number += 1
        self.suggested += 1

    def note(self, query: Query, assignment: Assignment) -> None:
        self.number += 1
        if query.trial_id:
            self.suggested += 1
            self.asked[query.trial_id] = (query, assignment)
