"""Search with Optuna's samplers."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from holdfast.compat.advice import explains_keywords, is_of
from holdfast.lazy import OPTUNA, Framework
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import (
    Assignment,
    Parameter,
    Parameters,
    Same,
    inside,
)
from holdfast.trial.space import Categorical, Float, Integer, same
from holdfast.trial.values import spread
from holdfast.tune.search.library import AssignmentCodec, LibrarySearch, SearchGoal, Study, nested

DISTRIBUTIONS: Final = "optuna.distributions"
_NEARLY: Final = 1e-9
_AS_THEY_ARE = (type(None), bool, int, float, str)


class NamedParameters:
    """Configs of a space in Optuna's own types: nested under names such as `net/width`.

    `distributions` are the parameters; None if a function chooses them as it runs.
    """

    def __init__(self, distributions: Mapping[str, Any] | None) -> None:
        self.distributions = distributions

    def config(self, assignment: Assignment) -> dict[str, Any]:
        return nested(assignment.items())

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.distributions is None:
            return config
        flat = spread(config)
        return {name: flat[name] for name in self.distributions if name in flat}

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment:
        flat = spread(config)
        for name in flat if self.distributions is not None else ():
            if name not in self.distributions:  # type: ignore[operator]
                known = ", ".join(map(repr, self.distributions or ()))
                raise InvalidSearchSpace(
                    f"{label}: {name} is not in the search space, only {known}"
                )
        return flat

    def fit(self, assignment: Assignment, who: str) -> Assignment:
        return assignment

    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment:
        """Leaves out missing values: the sampler adds them."""
        return assignment


class AsksParameters:
    """For holdfast's domains: parameters may depend on choices before them."""

    asked: Mapping[str, str] = MappingProxyType({})

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters.all
        self._distributions = dict(distributions_of(parameters))
        self._choices = {
            one.name: choices_of(one.domain)
            for one in parameters.all
            if isinstance(one.domain, Categorical)
        }

    def ask(self, trial: Any) -> Assignment:
        found: dict[str, Any] = {}
        for parameter in self._parameters:
            name = parameter.name
            if parameter.exists_in(found):
                value = suggested(trial, name, self._distributions[name])
                choices = self._choices.get(name)
                found[name] = value if choices is None else choices.index(value)
        return found

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        return {name: self._fixed(name, value) for name, value in assignment.items()}

    def _fixed(self, name: str, value: Any) -> Any:
        if name in self._choices:
            return self._choices[name][value]
        distribution = self._distributions[name]
        if distribution.step is None or isinstance(value, int):
            return value
        # Optuna's own multiple differs in the last digit from the one that users see.
        low, step = distribution.low, distribution.step
        return low + round((value - low) / step) * step


class AsksDistributions:
    """For a dict of Optuna's distributions."""

    asked: Mapping[str, str] = MappingProxyType({})

    def __init__(self, distributions: Mapping[str, Any]) -> None:
        self._distributions = distributions

    def ask(self, trial: Any) -> Assignment:
        return {
            name: suggested(trial, name, distribution)
            for name, distribution in self._distributions.items()
        }

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        return dict(assignment)


class AsksFunction:
    """For a function that asks the trial itself, and returns constants."""

    def __init__(self, define: Callable[[Any], Mapping[str, Any] | None]) -> None:
        self._define = define
        self.asked: dict[str, str] = {}

    def ask(self, trial: Any) -> Assignment:
        constants = self._define(trial)
        self.asked |= {name: _as_json(kind) for name, kind in trial.distributions.items()}
        if constants is not None and not isinstance(constants, Mapping):
            raise InvalidConfig(
                f"the function passed as space must return a dict of constants or None, "
                f"not {constants!r:.100}"
            )
        return {**spread(constants or {}), **trial.params}

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        return {name: value for name, value in assignment.items() if type(value) in _AS_THEY_ARE}


def _as_json(distribution: Any) -> str:
    """A distribution as Optuna stores it; "" if its choices are not JSON values."""
    from optuna.distributions import distribution_to_json

    try:
        return str(distribution_to_json(distribution))
    except TypeError:
        return ""


def suggested(trial: Any, name: str, distribution: Any) -> Any:
    """The value that an Optuna trial suggests for a parameter with this distribution."""
    kind = type(distribution).__name__
    if kind == "CategoricalDistribution":
        return trial.suggest_categorical(name, distribution.choices)
    suggest = trial.suggest_int if kind == "IntDistribution" else trial.suggest_float
    low, high, log = distribution.low, distribution.high, distribution.log
    return suggest(name, low, high, step=distribution.step, log=log)


def distributions_of(parameters: Parameters) -> Iterator[tuple[str, Any]]:
    """Each parameter's name and distribution. Raises InvalidSearchSpace."""
    for parameter in parameters.all:
        yield parameter.name, distribution_of(parameter)


def distribution_of(parameter: Parameter) -> Any:
    """Optuna's distribution. Raises InvalidSearchSpace, naming the parameter, if there is none."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    domain = parameter.domain
    match domain:
        case Categorical():
            return CategoricalDistribution(choices_of(domain))
        case Float(q=None):
            return FloatDistribution(domain.lower, domain.upper, log=domain.log)
        case Integer(log=True, q=None | 1) | Integer(log=False):
            first, last = domain.nearest(domain.lower), domain.nearest(domain.upper)
            return IntDistribution(first, last, log=domain.log, step=domain.q or 1)
        case Float(log=False):
            low, high = domain.nearest(domain.lower), domain.nearest(domain.upper)
            return FloatDistribution(low, high, step=domain.q)
        case Float() | Integer():
            advice = "omit q, and round in the trainable"
        case _:
            advice = "give it bounds: tune.uniform, or tune.quniform"
    raise InvalidSearchSpace(
        f"{parameter.name}: Optuna has no distribution for {domain}: {advice}"
    )


def as_domains(space: Any, name: str = "") -> Any:
    """The space with a domain in place of each of Optuna's distributions.

    Raises InvalidSearchSpace, naming the key, for a distribution without an equal domain.
    """
    if is_of(space, DISTRIBUTIONS):
        return _domain(space, name)
    if isinstance(space, dict):
        return {key: as_domains(one, inside(name, key)) for key, one in space.items()}
    if isinstance(space, Categorical):
        options = (as_domains(one, f"{name}:{i}") for i, one in enumerate(space.categories))
        return Categorical(categories=tuple(options))
    if type(space) in (list, tuple):
        return type(space)(as_domains(one, f"{name}/{i}") for i, one in enumerate(space))
    return space


def _domain(one: Any, name: str) -> Categorical | Float | Integer:
    if hasattr(one, "choices"):
        return Categorical(categories=tuple(one.choices))
    is_whole, step = isinstance(one.low, int), one.step
    if is_whole and step in (None, 1):
        return Integer(lower=one.low, upper=one.high + 1, log=one.log)
    if step is None:
        return Float(lower=one.low, upper=one.high, log=one.log)
    if abs(one.low / step - round(one.low / step)) > _NEARLY:
        raise InvalidSearchSpace(
            f"{name}: the steps of {one} do not begin at a multiple of {step}: pass a dict of "
            f"distributions alone, or tune.choice([...])"
        )
    if is_whole:
        return Integer(lower=one.low, upper=one.high, q=step)
    return Float(lower=one.low, upper=one.high, q=step)


def choices_of(domain: Categorical) -> tuple[Any, ...]:
    """The values that Optuna chooses from: the categories, or their numbers if it could not store
    or distinguish them."""
    categories = domain.categories
    plain = all(type(value) in _AS_THEY_ARE for value in categories)
    apart = not any(
        same(one, other) for i, one in enumerate(categories) for other in categories[:i]
    )
    itself = all(same(value, value + 0) for value in categories if type(value) is float)
    return categories if plain and apart and itself else tuple(range(len(categories)))


# Samplers that learn from no trial.
_LEARN_NOTHING = ("RandomSampler", "QMCSampler", "GridSampler", "BruteForceSampler")


@explains_keywords
class OptunaSearch(LibrarySearch):
    """Asks a sampler of Optuna (T. Akiba et al., "Optuna: A Next-generation Hyperparameter
    Optimization Framework", 2019); without `sampler` TPE (J. Bergstra et al., "Algorithms for
    Hyper-Parameter Optimization", 2011).

    `space`: a dict of domains, as `param_space`; a dict of Optuna's distributions, with names as
    `net/width` for nested ones; a dict of both; or a function of a trial which calls its
    `suggest_...` methods and returns a dict of additional constants, or None. Default: the
    Tuner's. `metric`, `mode`: one goal, or lists of several. `seed` makes the answers
    reproducible, also those of a `sampler`. `storage` (a URL or an Optuna storage; default: in
    memory) and `study_name`: the study, for other programs to read; an existing one is continued.
    The URL must not contain a password. See `LibrarySearch` for the rest.

    With a `storage`, a trial that a scheduler stops early is PRUNED there, with TPE and samplers
    that learn from no trial, and with several metrics. Otherwise it is COMPLETE with its last
    report, because other samplers learn nothing from pruned trials. Intermediate reports are
    passed on if a `storage` or a sampler of your own may use them, for one metric.

    Raises ImportError without Optuna, InvalidConfig.
    """

    library: ClassVar[Framework] = OPTUNA
    expressions = "optuna"
    takes_many_metrics: ClassVar[bool] = True

    def __init__(
        self,
        space: Any = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        if space is not None and not (callable(space) or isinstance(space, Mapping)):
            raise InvalidConfig(
                f"space must be a dict of domains or of Optuna's distributions, or a function of "
                f"a trial, not {space!r:.100}"
            )
        if isinstance(sampler, type):
            raise InvalidConfig(f"sampler must be a sampler, not its class: {sampler.__name__}()")
        if sampler is not None and not hasattr(sampler, "sample_independent"):
            raise InvalidConfig(
                f"sampler must be a sampler of Optuna, such as optuna.samplers.TPESampler(), not "
                f"{sampler!r:.100}"
            )
        _check_no_password(storage)
        self._sampler = sampler
        if type(sampler).__name__ in _LEARN_NOTHING:
            self.look_ahead = 1.0
        self._study_name = study_name
        self._storage = storage

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        if callable(space):
            return NamedParameters(None)
        if is_own and space and all(is_of(one, DISTRIBUTIONS) for one in space.values()):
            return NamedParameters(space)
        return super().read_space(as_domains(space), is_own=is_own)

    def open_study(self, parameters: Any, goal: SearchGoal, seed: int) -> Study:
        from holdfast.tune.search.optuna_study import Asks, OptunaStudy

        asks: Asks
        if isinstance(parameters, Parameters):
            asks = AsksParameters(parameters)
        elif parameters.distributions is not None:
            asks = AsksDistributions(parameters.distributions)
        else:
            asks = AsksFunction(self._space)
        return OptunaStudy(
            asks,
            goal,
            sampler=self._sampler,
            seed=seed,
            storage=self._storage,
            study_name=self._study_name,
        )

    @property
    def asked_space(self) -> Mapping[str, str]:
        study: Any = None if self._run is None else self._run.study
        return {} if study is None else dict(study.asked)

    @property
    def infeasible(self) -> Collection[str]:
        study: Any = None if self._run is None else self._run.study
        return () if study is None else study.infeasible

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> dict[str, Any]:
        """Optuna's distributions for a dict of domains, by names such as `net/width`.

        Parameters inside a choice have names such as `net:0/width` (see `trial.parameters`).
        Raises InvalidSearchSpace, naming the parameter, if Optuna has no distribution for it.
        """
        return dict(distributions_of(Parameters(spec, who="OptunaSearch", named=False)))


def _check_no_password(storage: Any) -> None:
    """Refuse a password: the search, with its storage, is pickled into the experiment's
    directory."""
    url = getattr(storage, "url", storage)
    if isinstance(url, str) and urlsplit(url).password:
        raise InvalidConfig(
            "the storage has a password in its URL, which would be stored with the experiment: "
            "leave it out, and let the driver find it in PGPASSWORD, ~/.pgpass or ~/.my.cnf"
        )
