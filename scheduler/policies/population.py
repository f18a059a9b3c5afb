"""Trials that learn from each other: the worst continue from the best with a changed config."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Self

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.goal import Chance, Judging, check_number
from holdfast.scheduler.policies.members import Member, Members, time_of_clone
from holdfast.scheduler.policy import (
    Abort,
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
    NoMoreTrials,
    Observation,
    PauseTrial,
    SaveTrial,
    Stalled,
    Tell,
    TrialAdded,
    TrialEnded,
    TrialReported,
    UnpauseTrial,
    UserAnswered,
    View,
)
from holdfast.trial.config import FOR_RAY
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import names_text, near_text
from holdfast.trial.search_space.variants import Spec
from holdfast.trial.space import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    Normal,
    below,
    check_drawn,
    has_user_code,
    is_grid,
)
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import ABSENT, is_plain, key_name, unwrap_scalar, value_at

Path = tuple[str, ...]
# Larger numbers could overflow when they are multiplied.
_HUGE: Final = 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """How one parameter may change.

    Exactly one of three is set: `values` has those of a list, in its order; `domain` is one of
    holdfast's; `function` is the user's own and returns a value.
    """

    path: Path
    values: tuple[Any, ...] = ()
    domain: Float | Integer | Normal | Categorical | None = None
    function: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def name(self) -> str:
        return key_name(self.path)

    def draw(self, chance: Chance) -> Any:
        """A new value, independent of the current one. Not for a mutation with a `function`."""
        if self.domain is not None:
            return self.domain.draw(chance)
        return self.values[below(len(self.values), chance)]

    def knows(self, value: object) -> bool:
        """True if `value` has neighbours, so that `moved` can be called."""
        if self.values:
            return value in self.values
        is_small = is_number(value) and -_HUGE < value < _HUGE
        return is_small and not isinstance(self.domain, Categorical)

    def moved(self, value: Any, chance: Chance, factors: Sequence[float]) -> Any:
        """A neighbour of `value`: the one before or after it in a list, or `value` times a factor.

        If whole numbers are drawn, it stays a whole number and changes by at least 1. A result
        outside the domain becomes the nearest value inside.
        """
        if self.values:
            step = 1 if chance.random() < 0.5 else -1
            place = self.values.index(value) + step
            return self.values[min(max(place, 0), len(self.values) - 1)]
        factor = factors[below(len(factors), chance)]
        product = value * factor
        if isinstance(self.domain, Integer) or (self.function and isinstance(value, int)):
            product = _whole(product, away=factor > 1)
        if isinstance(self.domain, (Float, Integer, Normal)):
            return self.domain.nearest(product)
        return product

    def ask(self, config: Mapping[str, Any]) -> Any:
        """Call the user's function. Raises InvalidConfig if it does not return plain data."""
        assert self.function is not None
        value = unwrap_scalar(self.function(config))
        self.check(value)
        return value

    def check(self, value: object) -> None:
        """Raise InvalidConfig, naming the parameter, if `value` is not plain data."""
        if not is_plain(value):
            raise InvalidConfig(
                f"hyperparam_mutations: {self.name} became {value!r:.80}, but only plain data "
                "(numbers, text, True, False, None, lists and dicts of them) can be stored: use "
                "names or numbers, and make objects from them in the trainable"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A new config; with `asked`, `Population.completed` must complete it."""

    config: Mapping[str, Any]
    asked: Mapping[str, Any] = field(default_factory=dict)


def mutations_of(given: Any) -> tuple[Mutation, ...]:
    """The mutations in `hyperparam_mutations`, one per parameter. Raises InvalidConfig."""
    if not isinstance(given, Mapping):
        raise InvalidConfig(
            f"hyperparam_mutations={given!r:.80}: pass a dict such as {{'lr': [...]}}"
        )
    return tuple(_mutations(given, ()))


def fill(config: Mapping[str, Any], mutations: Sequence[Mutation], chance: Chance) -> Proposal:
    """Draw values for the parameters that `config` lacks and has a place for."""
    filled, functions = dict(config), list[str]()
    for mutation in mutations:
        if not is_lacking(config, mutation.path):
            continue
        if mutation.function is not None:
            functions.append(mutation.name)
        else:
            filled = put(filled, mutation.path, mutation.draw(chance))
    return _proposal(filled, functions)


def explore(
    config: Mapping[str, Any],
    mutations: Sequence[Mutation],
    chance: Chance,
    *,
    resample_probability: float,
    factors: Sequence[float],
) -> Proposal:
    """Return a neighbour of `config`: each parameter is resampled with that probability, else
    moved.

    A parameter that the config lacks, or that has no neighbours, is resampled; one that has no
    place in this config stays out.
    """
    explored, functions = dict(config), list[str]()
    for mutation in mutations:
        if not has_room(config, mutation.path):
            continue
        value = unwrap_scalar(value_at(config, mutation.path))
        resamples = chance.random() < resample_probability
        if mutation.knows(value) and not resamples:
            explored = put(explored, mutation.path, mutation.moved(value, chance, factors))
        elif mutation.function is not None:
            functions.append(mutation.name)
        else:
            explored = put(explored, mutation.path, mutation.draw(chance))
    return _proposal(explored, functions)


def _proposal(config: dict[str, Any], functions: Sequence[str]) -> Proposal:
    """`functions` are the parameters for which the user's function must still be called."""
    return Proposal(config=config, asked={"functions": functions} if functions else {})


def has_room(config: Mapping[str, Any], path: Path) -> bool:
    """Whether the config has a place for the parameter: every outer key that it has holds a dict.

    A choice between `{"width": 64}` and "none" may leave no place for "width".
    """
    inner: Any = config
    for key in path[:-1]:
        if key not in inner:
            return True
        inner = inner[key]
        if not isinstance(inner, Mapping):
            return False
    return True


def is_lacking(config: Mapping[str, Any], path: Path) -> bool:
    """True if the config lacks the parameter and has a place for it."""
    return value_at(config, path) is ABSENT and has_room(config, path)


def put(config: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of nested dicts with the value at `path` replaced; `has_room` must hold."""
    key, *rest = path
    if not rest:
        return {**config, key: value}
    return {**config, key: put(config.get(key, {}), tuple(rest), value)}


def _mutations(given: Mapping[str, Any], above: Path) -> Iterator[Mutation]:
    for key, value in given.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value and not is_grid(value):
            yield from _mutations(value, path)
        else:
            yield _mutation(path, value)


def _mutation(path: Path, given: Any) -> Mutation:
    if isinstance(given, Categorical) and not any(
        isinstance(one, Domain) for one in given.categories
    ):
        given = given.categories
    if isinstance(given, (list, tuple)) and given:
        made = Mutation(path=path, values=tuple(map(unwrap_scalar, given)))
        for value in made.values:
            made.check(value)
        return made
    if isinstance(given, Domain):
        return _of_domain(path, given)
    if callable(given):
        return Mutation(path=path, function=lambda config: given())
    raise InvalidConfig(
        f"hyperparam_mutations: {key_name(path)} is {given!r:.80}; pass a list of values, a "
        "domain (tune.uniform(...), tune.choice(...)), a function that takes no argument and "
        "returns a value, or a dict of these"
    )


def _of_domain(path: Path, domain: Domain) -> Mutation:
    if isinstance(domain, Function):
        called = domain
        return Mutation(path=path, function=lambda config: called.call(Spec(config, [])))
    if has_user_code({"": domain}):
        drawn = domain
        return Mutation(path=path, function=lambda config: drawn.sample())
    assert isinstance(domain, (Float, Integer, Normal, Categorical))
    made = Mutation(path=path, domain=domain)
    for value in domain.categories if isinstance(domain, Categorical) else ():
        if not isinstance(value, Domain):
            made.check(value)
    return made


def _whole(product: float, *, away: bool) -> int:
    """Round away from the old value: 4 * 1.2 is 5, and 4 * 0.8 is 3."""
    size = abs(product)
    # 100 * 1.1 is 110.00000000000001.
    rounded = math.ceil(size - 1e-9 * size) if away else math.floor(size + 1e-9 * size)
    return rounded if product > 0 else -rounded


class Population(Judging):
    """Base class of schedulers in which the worst trials continue from checkpoints of the best.

    The subclass makes the new configs: `first`, `next` and `completed`.
    """

    changes_configs = True
    needs_checkpoints = True
    # Of the run: they are not in a pickle.
    _members: Members
    _has_compared: bool

    def __init__(
        self,
        time_attr: str,
        metric: str | None,
        mode: str | None,
        *,
        perturbation_interval: float,
        burn_in_period: float,
        quantile_fraction: float,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None,
        log_config: bool,
        require_attrs: bool,
        synch: bool,
    ) -> None:
        """Raise InvalidConfig if a setting is not valid."""
        super().__init__(time_attr, metric, mode)
        check_number(self, "perturbation_interval", perturbation_interval, least=0, above=True)
        check_number(self, "burn_in_period", burn_in_period, least=0)
        what = (
            "the fraction of the trials that counts as the best, and as the worst: from 0 to 0.5"
        )
        check_number(self, "quantile_fraction", quantile_fraction, least=0, most=0.5, what=what)
        require(
            custom_explore_fn is None or callable(custom_explore_fn),
            f"{type(self).__name__}(custom_explore_fn={custom_explore_fn!r}): pass a function "
            "that takes a config and returns one",
        )
        self._interval, self._burn_in = perturbation_interval, burn_in_period
        self._quantile = quantile_fraction
        self._custom_explore_fn = custom_explore_fn
        self._log_config, self._requires, self._synch = log_config, require_attrs, synch
        self._has_warned = False
        # The trials of a common change for which the user's code has not answered yet.
        self._asked: set[str] = set()

    def begun(self, spec: ExperimentSpec) -> Self:
        require(
            not self._synch or spec.num_samples > 0,
            f"{type(self).__name__}(synch=True) compares all trials at each interval, but with "
            "num_samples=-1 there is always one more: set num_samples",
        )
        fresh = super().begun(spec)
        fresh._has_compared = False
        fresh._members = Members(self._quantile, synch=self._synch)
        return fresh

    def follow(self, before: Trial, trial: Trial) -> None:
        self._members.follow(before, trial)

    # -- what a subclass defines --

    def first(self, config: Mapping[str, Any], chance: Chance) -> Proposal | None:
        """The config that a trial starts with; None to keep its own."""
        raise NotImplementedError

    def next(self, view: View, trial_id: str, source: str, chance: Chance) -> Proposal:
        """The config of a trial that continues from `source`."""
        raise NotImplementedError

    def completed(self, config: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """A proposal's config with the values that it asks for.

        Runs outside the control loop, and may call the user's functions; must not change this
        object.
        """
        raise NotImplementedError

    def note(self, trial: Trial, time: float, score: float) -> None:
        """Called when a trial is compared."""

    def note_takeover(self, trial_id: str, source: str) -> None:
        """Called when a trial continues from the checkpoint of another."""

    # -- events --

    def lacks(self, event: TrialReported, *, is_timed: bool) -> Sequence[Decision]:
        if not self._requires:
            return ()
        return [self._missing(self.goal.metric if is_timed else self.goal.time_attr, event.row)]

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        trial_id = event.trial_id
        trial, member = view.trials[trial_id], self._members[trial_id]
        if time < self._burn_in or time - member.time < self._interval:
            return self._yield_resources(view, trial, member)
        self.note(trial, time, value)
        member.time, member.score = time, value
        self._has_compared = True
        is_worst, is_best = self._members.rank(trial)
        if not self._synch:
            member.good_from = 0 if is_best else trial.iteration
        self._members.update(trial)
        if not trial.checkpoints and not view.spec.saves_when_told:
            return self._without_checkpoint(view, self._saves_nothing(trial, time))
        if self._synch:
            return [PauseTrial(trial_id=trial_id)]
        if is_worst and (change := self._take_over(view, trial)):
            return change
        member.is_to_yield = self._is_crowded(view)
        saved = [SaveTrial(trial_id=trial_id)] if is_best else []
        return [*saved, *self._yield_resources(view, trial, member)]

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialAdded():
                # The search is complete: trials that paused for future ones can resume.
                unpaused = self._resume_paused() if view.is_complete and not self._synch else []
                return [*self._begin(view, event.trial_id), *unpaused]
            case UserAnswered():
                return self._answered(view, event)
            case TrialEnded():
                return self._warn_if_never_compared(view.trials[event.trial_id])
            case Stalled() if self._synch:
                return self._change_together(view)
            case Stalled() | NoMoreTrials() if not self._synch:
                return self._resume_paused()
            case _:
                return ()

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The config after the user's functions. Raises InvalidConfig if one does not return a
        config."""
        config = self.completed(dict(question["config"]), question["asked"])
        if question["source"] and self._custom_explore_fn is not None:
            config = self._custom_explore_fn(config)
            require(
                isinstance(config, dict),
                f"{type(self).__name__}: custom_explore_fn returned {config!r:.80}; it must "
                "return the config, a dict",
            )
            check_drawn(config, "custom_explore_fn")
        return {"config": config, "source": question["source"]}

    # -- private --

    def _begin(self, view: View, trial_id: str) -> Sequence[Decision]:
        trial = view.trials[trial_id]
        self._members.add(trial)
        chance = Chance(f"{self._seed}/population/{trial_id}")
        proposal = self.first(trial.config, chance)
        if proposal is None:
            return ()
        if proposal.asked:
            return [_question(trial_id, proposal, "")]
        return [ChangeTrial(trial_id=trial_id, config=proposal.config)]

    def _take_over(self, view: View, trial: Trial) -> list[Decision]:
        """Clone one of the best trials; returns nothing if none of them has a usable
        checkpoint."""
        sources = self._members.best_sources
        if not sources:
            return []
        trial_id = trial.trial_id
        member = self._members[trial_id]
        member.changes += 1
        chance = Chance(f"{self._seed}/population/{trial_id}/{member.changes}")
        source = self._members.best_source(below(sources, chance))
        proposal = self.next(view, trial_id, source, chance)
        member.time = time_of_clone(
            self._members[source], view.trials[source], self.goal.time_attr
        )
        member.good_from = math.inf  # its score with the new config is not known yet
        member.is_to_yield = False
        self._members.update(trial)
        self.note_takeover(trial_id, source)
        if proposal.asked or self._custom_explore_fn is not None:
            return [_question(trial_id, proposal, source)]
        return self._clone(view, trial_id, source, proposal.config)

    def _clone(
        self, view: View, trial_id: str, source: str, config: Mapping[str, Any]
    ) -> list[Decision]:
        """Clone, and let waiting trials run first.

        Otherwise a trial that is poor at each comparison would keep its resources from trials that
        could improve on it.
        """
        clone = CloneTrial(
            trial_id=trial_id, source=source, config=config, is_logged=self._log_config
        )
        if self._synch or view.is_complete:
            return [clone]
        if self._is_crowded(view):
            return [PauseTrial(trial_id=trial_id), clone]
        return [clone, *self._resume_paused(1)]

    def _answered(self, view: View, event: UserAnswered) -> Sequence[Decision]:
        config, source = event.answer["config"], event.answer["source"]
        if not source:
            return [ChangeTrial(trial_id=event.trial_id, config=config)]
        decisions: list[Decision] = []
        if view.trials[source].checkpoints:  # else they were lost meanwhile
            decisions += self._clone(view, event.trial_id, source, config)
        self._asked.discard(event.trial_id)
        if self._synch and not self._asked:
            decisions += self._resume_paused()
        return decisions

    def _change_together(self, view: View) -> Sequence[Decision]:
        """Change all trials: they have reached the interval and are paused."""
        worst = [view.trials[trial_id] for trial_id in self._members.worst]
        decisions = [one for trial in worst for one in self._take_over(view, trial)]
        self._asked = {one.trial_id for one in decisions if isinstance(one, AskUser)}
        return decisions if self._asked else [*decisions, *self._resume_paused()]

    def _yield_resources(self, view: View, trial: Trial, member: Member) -> Sequence[Decision]:
        """Make way for waiting trials, once the trial has saved."""
        if not member.is_to_yield or not (trial.has_saved or view.spec.saves_when_told):
            return ()
        member.is_to_yield = False
        if not self._is_crowded(view):
            return ()
        pause, unpause = PauseTrial(trial_id=trial.trial_id), UnpauseTrial(trial_id=trial.trial_id)
        # In the queue it would run before the trials that the search has yet to suggest.
        return [pause, unpause] if view.is_complete else [pause]

    def _is_crowded(self, view: View) -> bool:
        return view.has_queue or not (view.asking or view.is_complete)

    def _resume_paused(self, most: int | None = None) -> list[Decision]:
        paused = self._members.paused(most)
        return [UnpauseTrial(trial_id=trial_id) for trial_id in paused]

    def _without_checkpoint(self, view: View, text: str) -> list[Decision]:
        if not view.spec.options.get(FOR_RAY):
            return [Abort(message=text)]
        has_warned, self._has_warned = self._has_warned, True
        return (
            []
            if has_warned
            else [Tell(text=f"{text}. Until then its trials only run to their end")]
        )

    def _warn_if_never_compared(self, trial: Trial) -> Sequence[Decision]:
        """Warn once if the interval is longer than the trials: then the scheduler does nothing."""
        if self._has_warned or trial.status is not Status.TERMINATED or self._has_compared:
            return ()
        self._has_warned = True
        return [
            Tell(
                text=f"{trial.spec.name} ended before {type(self).__name__} had compared it with "
                f"another trial: perturbation_interval={self._interval:g}, in "
                f"{self.goal.time_attr}. Set a smaller perturbation_interval, or another "
                "time_attr"
            )
        ]

    def _missing(self, name: str, row: Mapping[str, Any]) -> Decision:
        return Abort(
            message=f"{type(self).__name__}: a report has no number "
            f"{name!r}.{near_text([name], row)} Reported: {names_text(row)}. Report it, "
            "or set require_attrs=False to skip such reports"
        )

    def _saves_nothing(self, trial: Trial, time: float) -> str:
        return (
            f"{type(self).__name__} resumes trials from checkpoints, but {trial.spec.name} has "
            f"reported none until {self.goal.time_attr}={time:g}: pass report() a checkpoint at "
            f"least once per perturbation_interval={self._interval:g}"
        )


def _question(trial_id: str, proposal: Proposal, source: str) -> Decision:
    question = {"config": proposal.config, "asked": proposal.asked, "source": source}
    return AskUser(trial_id=trial_id, question=question)
