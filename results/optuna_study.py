"""Exports an experiment's trials to an Optuna storage, for optuna-dashboard and Optuna's plots.

A repeated export adds new trials and updates unfinished ones. Optuna never changes a finished
trial: one that was resumed since then is added again, with a note of the trial that it supersedes.

Before Optuna's `add_trial` inserts an intermediate value, it asks the database for the trial and
for a value of the same step, and flushes its session: a million values take hours. `Adding` takes
one statement for each table and batch of trials. Only the schema of Optuna 3.2 to 5 is known;
trials for another one, or for a storage without tables, pass through `add_trial`.

The records have the search space as text (`loguniform(0.001, 0.1)`), so that reading it needs no
user code. The text is parsed as data and never evaluated. In a choice among dicts, lists or
domains, parameters have the config's names, `model/alpha`. The choice itself is a parameter, too:
its value names the option, by the constant that tells the options apart (`{"kind": "ridge"}`),
or by its number.
"""

from __future__ import annotations

import ast
import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.trial_folder import Row, numeric
from holdfast.experiment.progress.summarizer import value_of
from holdfast.experiment.records.rows import columns_of
from holdfast.lazy import OPTUNA
from holdfast.plain_numbers import is_number
from holdfast.results.importance import ImportanceMissing
from holdfast.results.outcome import Outcome
from holdfast.results.ranking import params_of, reported_names, values_of, varied_names
from holdfast.scheduler.events import ExperimentSpec
from holdfast.syncer.errors import redact
from holdfast.text.values import counted
from holdfast.trial import space as domains
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace, TuneError
from holdfast.trial.search_space.parameters import Parameters
from holdfast.trial.space import Categorical, same
from holdfast.trial.trial import Status, StopReason, Trial
from holdfast.trial.values import is_plain, key_name, readable

if TYPE_CHECKING:
    import optuna


# Types that Optuna keeps as categories; values of other types become text.
SIMPLE = (type(None), bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers from `low` to `high`, both included; with a `step`, `low` plus multiples of it."""

    low: float
    high: float
    is_whole: bool = False
    is_log: bool = False
    step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """One of these values."""

    values: tuple[Any, ...]


Distribution = Numbers | Categories


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    """The distribution of each parameter that has one; `unknown` are the parameters of which the
    search space does not determine it."""

    known: Mapping[str, Distribution]
    unknown: tuple[str, ...]


def distributions(
    declared: Mapping[str, Distribution | None],
    names: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
) -> Distributions:
    """The distributions of `names`: those `declared`, if all values in `configs` are in them.

    If the space does not determine it (`sample_from`, `randn`, a function that asks an Optuna
    trial), it is the range of the numbers in `configs`. Other values without a domain have none: a
    later trial may bring a value that is in no distribution yet.
    """
    found, unknown = {}, []
    for name in names:
        values = [config[name] for config in configs if name in config]
        made = declared.get(name)
        if made is None or not all(holds(made, value) for value in values):
            unknown += [name] if values else []
            made = _range(values)
        if made is not None:
            found[name] = made
    return Distributions(known=found, unknown=tuple(unknown))


def simple(value: Any) -> Any:
    """A value in the form of a category."""
    return value if type(value) in SIMPLE else str(value)


def holds(made: Distribution, value: Any) -> bool:
    """True if the distribution contains the value."""
    if isinstance(made, Categories):
        return simple(value) in made.values
    if not is_number(value) or not made.low <= value <= made.high:
        return False
    if made.step is None:
        return not made.is_whole or value == int(value)
    steps: float = (value - made.low) / made.step
    return abs(steps - round(steps)) < 1e-8


def _range(values: Sequence[Any]) -> Numbers | None:
    kinds = {type(value) for value in values}
    if not kinds or not kinds <= {int, float} or not all(map(math.isfinite, values)):
        return None
    # Not whole numbers, even if all are so far: a later trial may bring another one.
    return Numbers(low=min(values), high=max(values))


def parsed(text: str) -> Distribution | None:
    """The distribution of a domain, given as text; None if it has none."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:  # the text of a domain with values that are not plain
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    try:
        given = [ast.literal_eval(argument) for argument in call.args]
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    except ValueError:
        return None
    return _of_call(call.func.id, [*given, *named.values()])


def of_optuna(text: str) -> Distribution | None:
    """The distribution that Optuna describes by this JSON; None if it does not say enough."""
    try:
        described = json.loads(text)
        given = described["attributes"]
        if "choices" in given:
            return Categories(values=tuple(dict.fromkeys(map(simple, given["choices"]))))
        return Numbers(
            low=given["low"],
            high=given["high"],
            is_whole=described["name"].startswith("Int"),
            is_log=given["log"],
            step=None if given["log"] else given["step"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _of_call(name: str, given: Sequence[Any]) -> Distribution | None:
    if name in ("choice", "grid_search"):
        values = tuple(dict.fromkeys(simple(value) for value in given[0]))
        return Categories(values=values)
    is_log, is_whole = "log" in name, name.endswith("randint")
    if not (is_whole or name.endswith("uniform")):
        return None
    low, high, *quantum = given
    if is_whole and not quantum:
        return Numbers(low=low, high=high - 1, is_whole=True, is_log=is_log)
    if not quantum:
        return Numbers(low=low, high=high, is_log=is_log)
    return _stepped(low, high, quantum[0], is_whole=is_whole, is_log=is_log)


def _stepped(low: float, high: float, q: float, *, is_whole: bool, is_log: bool) -> Numbers:
    """Multiples of q within the bounds. Optuna has no steps on a logarithmic scale."""
    if is_log:
        return Numbers(low=low, high=high, is_whole=is_whole, is_log=True)
    first, last = math.ceil(low / q - 1e-9) * q, math.floor(high / q + 1e-9) * q
    return Numbers(low=first, high=last, is_whole=is_whole, step=q)


_DOMAINS: Final[Mapping[str, Callable[..., Any]]] = {
    name: getattr(domains, name)
    for name in (
        *("uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn"),
        *("randint", "qrandint", "lograndint", "qlograndint", "choice"),
    )
} | {"grid_search": domains.choice}
_CATEGORY = re.compile(r":\d+(?=/)")


class RecordedSpace:
    """The search space of an experiment.

    `declared` has the distribution of each parameter, None for one whose distribution is unknown.
    """

    def __init__(self, spec: ExperimentSpec, trials: Sequence[Trial]) -> None:
        self._spec = spec
        self._asked = _asked_in(trials)
        self._choices = tuple(_choices_in(spec))
        self.declared: dict[str, Distribution | None] = {
            key_name(tuple(part["path"])): parsed(part["text"]) for part in spec.whole_space
        }
        for choice in self._choices:
            self.declared |= choice.declared
        self.declared |= self._asked

    def names(self, trials: Sequence[Trial]) -> list[str]:
        """The parameters that the space varies. Those of a choice precede the others."""
        inside = {name: None for choice in self._choices for name in choice.declared}
        varied = [n for n in varied_names(self._spec, trials) if not self._is_inside(n)]
        return list(dict.fromkeys([*inside, *self._asked, *varied]))

    def params(self, trial: Trial) -> dict[str, Any]:
        """A trial's whole config, flat, and its options of the choices."""
        found = params_of(trial)
        for choice in self._choices:
            found |= choice.values(trial.config)
        return found

    def _is_inside(self, name: str) -> bool:
        heads = (choice.name for choice in self._choices)
        return any(name == head or name.startswith(f"{head}/") for head in heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice whose options are not all plain values.

    `declared` has its parameters with their distributions, None for one that has no distribution.
    """

    name: str
    path: tuple[str | int, ...]
    parameters: Parameters
    labels: Mapping[str, tuple[Any, ...]]
    declared: Mapping[str, Distribution | None]

    def values(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its parameters in a config; empty if the config does not fit."""
        try:
            value = readable(_at(config, self.path))
            found = self.parameters.assignment({self.name: value}, self.name, _alike)
        except (InvalidSearchSpace, KeyError, IndexError, TypeError):
            return {}
        return {
            _shown(name): self.labels[name][value] if name in self.labels else value
            for name, value in found.items()
        }


def _asked_in(trials: Sequence[Trial]) -> dict[str, Distribution | None]:
    """The parameters that functions have asked an Optuna trial for. One with several distributions
    has all that they allow."""
    found: dict[str, Distribution | None] = {}
    for trial in trials:
        for name, text in trial.spec.asked.items():
            made = of_optuna(text)
            found[name] = _merged(found[name], made) if name in found else made
    return found


def _choices_in(spec: ExperimentSpec) -> Iterator[Choice]:
    """The choices of the search space whose options are not all plain values."""
    for part in spec.whole_space:
        domain = _read(part["text"]) if part["varied"] else None
        if isinstance(domain, Categorical) and not _are_plain(domain.categories):
            path = tuple(part["path"])
            made = _choice(key_name(path), path, domain)
            if made is not None:
                yield made


def _choice(name: str, path: tuple[str | int, ...], domain: Categorical) -> Choice | None:
    try:
        parameters = Parameters({name: domain}, who="the export")
    except InvalidSearchSpace:
        return None
    labels, declared = {}, dict[str, Distribution | None]()
    for one in parameters.all:
        made: Distribution | None
        if isinstance(one.domain, Categorical):
            labels[one.name] = _labels(one.domain.categories)
            made = Categories(values=labels[one.name])
        else:
            made = parsed(str(one.domain))
        shown = _shown(one.name)
        declared[shown] = _merged(declared[shown], made) if shown in declared else made
    return Choice(name=name, path=path, parameters=parameters, labels=labels, declared=declared)


def _shown(name: str) -> str:
    """`model:0/alpha`, as searches name it, in the name that the config has for it."""
    return _CATEGORY.sub("", name)


def _labels(options: Sequence[Any]) -> tuple[Any, ...]:
    """The labels of the options: a constant that differs among dicts, else their text, else
    numbers."""
    keys = dict.fromkeys(key for one in options if isinstance(one, dict) for key in one)
    by_key = [
        [one.get(key, one) if isinstance(one, dict) else _text(one) for one in options]
        for key in keys
    ]
    for found in (*by_key, list(map(_text, options))):
        if _are_plain(found):
            return tuple(found)
    return tuple(range(len(options)))


def _text(option: Any) -> Any:
    return simple(option) if is_plain(option) else option


def _are_plain(options: Sequence[Any]) -> bool:
    """True if Optuna can keep the options, and tell them apart."""
    simple = all(type(one) in SIMPLE for one in options)
    return simple and len(set(options)) == len(options)


def _merged(one: Distribution | None, other: Distribution | None) -> Distribution | None:
    """The distribution of a parameter that two options have; None if they do not go together."""
    if isinstance(one, Categories) and isinstance(other, Categories):
        return Categories(values=tuple(dict.fromkeys((*one.values, *other.values))))
    if not isinstance(one, Numbers) or not isinstance(other, Numbers):
        return None
    low, high = min(one.low, other.low), max(one.high, other.high)
    has_steps = one.step == other.step and one.low == other.low
    return replace(
        one,
        low=low,
        high=high,
        is_whole=one.is_whole and other.is_whole,
        is_log=one.is_log and other.is_log,
        step=one.step if has_steps else None,
    )


def _alike(one: object, other: object) -> bool:
    return same(readable(one), readable(other))


def _at(config: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        config = config[key]
    return config


def _read(text: str) -> Any:
    """The value or domain that a text describes; None if it cannot be read."""
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, InvalidSearchSpace):
        return None


def _value(node: ast.expr) -> Any:
    """The text is data: nothing is evaluated. Raises ValueError, TypeError, InvalidSearchSpace."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named) if name in _DOMAINS:
            words = {word.arg or "": _value(word.value) for word in named}
            return _DOMAINS[name](*map(_value, given), **words)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {ast.literal_eval(key or node): _value(value) for key, value in pairs}
        case ast.List(elts=parts):
            return list(map(_value, parts))
        case ast.Tuple(elts=parts):
            return tuple(map(_value, parts))
        case _:
            return ast.literal_eval(node)


_SCHEMA = "v3.2.0.a"
# The rows of a transaction: SQLite is locked for some 0.1 s, and syncs the file once.
_BATCH = 10_000


class Adding:
    """Adds trials to `study`. Those of a known database are there after `flush`.

    `database` is the RDBStorage of the study; None for another storage.
    """

    def __init__(self, study: Any, database: Any | None) -> None:
        self._study = study
        is_known = database is not None and database.get_current_version() == _SCHEMA
        self._database: Any = database if is_known else None
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, trial: Any) -> None:
        """Add a FrozenTrial, which `create_trial` has checked."""
        if self._database is None:
            self._study.add_trial(trial)
            return
        self._waiting.append(trial)
        self._rows += len(trial.intermediate_values) + len(trial.params) + len(trial.user_attrs)
        if self._rows >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the trials that wait. Errors of Optuna's storage pass through."""
        trials, self._waiting, self._rows = self._waiting, [], 0
        if not trials:
            return
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._insert(trials)
        except SQLAlchemyError:  # such as a locked database: Optuna tries it five times
            for trial in trials:
                self._study.add_trial(trial)

    def _insert(self, trials: Sequence[Any]) -> None:
        from optuna.storages._rdb import models
        from sqlalchemy.orm import Session

        with Session(self._database.engine) as session, session.begin():
            made = self._numbered(models, session, trials)
            tables = (
                (models.TrialValueModel, _value_rows),
                (models.TrialParamModel, _param_rows),
                (models.TrialUserAttributeModel, _attribute_rows),
                (models.TrialIntermediateValueModel, _step_rows),
            )
            for model, rows_of in tables:
                rows = [
                    {"trial_id": row.trial_id, **columns}
                    for row, trial in zip(made, trials, strict=True)
                    for columns in rows_of(model, trial)
                ]
                if rows:
                    session.connection().execute(model.__table__.insert(), rows)

    def _numbered(self, models: Any, session: Any, trials: Sequence[Any]) -> list[Any]:
        """The rows of the trials, with ids and numbers. The lock on the study, or SQLite's on the
        file, keeps others from adding a trial with the same number."""
        study_id = self._database.get_study_id_from_name(self._study.study_name)
        models.StudyModel.find_or_raise_by_id(study_id, session, for_update=True)
        made = [
            models.TrialModel(
                study_id=study_id,
                state=trial.state,
                datetime_start=trial.datetime_start,
                datetime_complete=trial.datetime_complete,
            )
            for trial in trials
        ]
        session.add_all(made)
        session.flush()
        in_order = sorted(made, key=lambda row: row.trial_id)
        first = in_order[0].count_past_trials(session)
        for number, row in enumerate(in_order, first):
            row.number = number
        session.flush()
        return made


_Rows = list[Mapping[str, Any]]


def _value_rows(model: Any, trial: Any) -> _Rows:
    rows: _Rows = []
    for objective, value in enumerate(trial.values or ()):
        stored, kind = model.value_to_stored_repr(value)
        rows.append({"objective": objective, "value": stored, "value_type": kind})
    return rows


def _param_rows(_model: Any, trial: Any) -> _Rows:
    from optuna.distributions import distribution_to_json

    return [
        {
            "param_name": name,
            "param_value": trial.distributions[name].to_internal_repr(value),
            "distribution_json": distribution_to_json(trial.distributions[name]),
        }
        for name, value in trial.params.items()
    ]


def _attribute_rows(_model: Any, trial: Any) -> _Rows:
    return [
        {"key": key, "value_json": json.dumps(value)} for key, value in trial.user_attrs.items()
    ]


def _step_rows(model: Any, trial: Any) -> _Rows:
    rows: _Rows = []
    for step, value in trial.intermediate_values.items():
        stored, kind = model.intermediate_value_to_stored_repr(value)
        row = {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}
        rows.append(row)
    return rows


_log = logging.getLogger(__name__)
_OWN = "holdfast:"
# The attribute by which the search identifies its trials in a study of its own.
_OF_SEARCH = "holdfast"
TRIAL_ID = f"{_OWN}trial_id"
ITERATION = f"{_OWN}iteration"
EXPERIMENT = f"{_OWN}experiment_id"
_METRIC = f"{_OWN}metric"
_DIRECTIONS = {"min": "minimize", "max": "maximize"}
_WITH_VALUE = ("COMPLETE", "PRUNED")
_SUPERSEDES = f"{_OWN}supersedes"


class OptunaMissing(TuneError, ImportError):
    """An export to Optuna was requested, but Optuna is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export: trials added, updated, and left as they were.

    `without_distribution` are the parameters whose distribution the records do not have: they have
    the range of their values, or are user attributes.
    """

    study_name: str
    added: int
    updated: int
    unchanged: int
    without_distribution: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return asdict(self)


def export(
    outcome: Outcome, storage: Any, *, study_name: str | None, goals: Mapping[str, str]
) -> Exported:
    """Write every trial into a study of `storage`: a URL, or a storage object of Optuna.

    `goals` has the mode of each metric that the study has the values of.

    Raises OptunaMissing; InvalidConfig for a metric that no trial has reported, a URL that cannot
    be opened, or a study of that name that belongs to another experiment or has another metric or
    direction. Other errors of Optuna's storage pass through.
    """
    optuna = _optuna("the export to an Optuna storage")
    name = study_name or outcome.location.path.rstrip("/").rpartition("/")[2]
    directions = [_DIRECTIONS[mode] for mode in goals.values()]
    for metric in goals:
        _check_metric(outcome, metric)
    database = _opened(optuna, storage)
    opened = optuna.storages.get_storage(database)
    study = optuna.create_study(
        storage=opened,
        study_name=name,
        directions=directions,
        load_if_exists=True,
    )
    metrics = list(goals)
    _check_ours(study, outcome, directions, metrics)
    study.set_user_attr(_METRIC, _one_or_all(metrics))
    with warnings.catch_warnings():  # Optuna calls it experimental; the dashboard shows the name
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(metrics)
    writer = _Export(optuna, opened, study, outcome, metrics)
    is_database = type(database) is optuna.storages.RDBStorage
    done = writer.run(Adding(study, database if is_database else None))
    for text in writer.notes():
        _log.warning("%s", text)
    return done


def _listed(names: Sequence[str], was: str, were: str) -> str:
    """`1 parameter was exported ...: x`."""
    count = counted(len(names), f"parameter {was}", f"parameters {were}")
    return f"{count}: {', '.join(names)}"


def _check_metric(outcome: Outcome, metric: str) -> None:
    """Refuse a metric that no trial has reported: it may be misspelt, and every trial would count
    as failed."""
    reporting = [trial for trial in outcome.trials.values() if trial.row is not None]
    rows = (row for _, rows in outcome.rows(reporting) for row in rows)
    if reporting and not any(metric in columns_of(row) for row in rows):
        names = reported_names([trial.row for trial in reporting if trial.row is not None])
        raise InvalidConfig(
            f"no trial has reported {metric!r}. Reported metrics: {', '.join(names)}"
        )


def _opened(optuna: Any, storage: Any) -> Any:
    if not isinstance(storage, str):
        return storage
    try:
        return optuna.storages.RDBStorage(storage)
    except Exception as error:  # of Optuna, SQLAlchemy or a driver
        first = str(error).partition("\n")[0]
        raise InvalidConfig(
            f"the Optuna storage {redact(storage)} cannot be opened: {redact(first)}. Pass a URL "
            f"such as sqlite:///trials.db"
        ) from error


def _filled_by_search(study: optuna.Study, outcome: Outcome) -> bool:
    found = study.get_trials(deepcopy=False)
    return any(trial.user_attrs.get(_OF_SEARCH) in outcome.trials for trial in found)


def _one_or_all(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def _check_ours(
    study: optuna.Study, outcome: Outcome, directions: Sequence[str], metrics: Sequence[str]
) -> None:
    ours = outcome.spec.experiment_id
    known = study.user_attrs.get(EXPERIMENT)
    if known is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(EXPERIMENT, ours)
        study.set_user_attr(f"{_OWN}path", outcome.location.public)
        study.set_user_attr(f"{_OWN}trainable", outcome.spec.trainable)
    elif known is None and _filled_by_search(study, outcome):
        raise InvalidConfig(
            f"the study {study.study_name!r} has the trials of this experiment from its search, "
            f"OptunaSearch(storage=...), and optuna-dashboard shows it as it is. For a copy with "
            f"all metrics, give another study_name (holdfast export --study NAME)"
        )
    elif known != ours:
        raise InvalidConfig(
            f"the study {study.study_name!r} has trials of another experiment: pass "
            f"another study_name"
        )
    there = [direction.name.lower() for direction in study.directions]
    if there != list(directions):
        raise InvalidConfig(
            f"the study {study.study_name!r} is to {', '.join(there)} and mode says "
            f"{', '.join(directions)}: give another study_name"
        )
    named = _one_or_all(metrics)
    before = study.user_attrs.get(_METRIC, named)
    if before != named:
        raise InvalidConfig(
            f"the study {study.study_name!r} has the values of {before!r}, not of {named!r}: "
            f"give another study_name"
        )


class _Export:
    """The export of one experiment to one study."""

    def __init__(
        self, library: Any, storage: Any, study: Any, outcome: Outcome, metrics: Sequence[str]
    ) -> None:
        self._optuna = library
        self._storage = storage
        self._study = study
        self._outcome = outcome
        self._metrics = metrics
        self._trials = list(outcome.trials.values())
        exported = study.get_trials(deepcopy=False)
        # The newest of those for the same trial.
        self._exported = {trial.user_attrs.get(TRIAL_ID): trial for trial in exported}
        space = RecordedSpace(outcome.spec, self._trials)
        self._params = {trial.trial_id: space.params(trial) for trial in self._trials}
        configs = list(self._params.values())
        made = distributions(space.declared, space.names(self._trials), configs)
        kinds = {name: _distribution(library, one) for name, one in made.known.items()}
        self._distributions = self._compatible(kinds, exported)
        self._lost = [name for name in kinds if name not in self._distributions]
        self._unknown = tuple(dict.fromkeys((*made.unknown, *self._lost)))

    def _compatible(
        self, candidates: Mapping[str, Any], exported: Sequence[Any]
    ) -> dict[str, Any]:
        """The distributions, without those of which the study has another kind from an earlier
        export."""
        before = {name: d for trial in exported for name, d in trial.distributions.items()}
        agreeing = {}
        for name, candidate in candidates.items():
            try:
                self._optuna.distributions.check_distribution_compatibility(
                    before.get(name, candidate), candidate
                )
            except ValueError:  # those parameters become user attributes
                continue
            agreeing[name] = candidate
        return agreeing

    def notes(self) -> Iterator[str]:
        """Warnings about the parameters whose distribution is not in the study."""
        known, attribute = self._distributions, "the user attribute config/NAME has the value"
        no_parameter = "was not exported as a parameter", "were not exported as parameters"
        if ranged := [name for name in self._unknown if name in known]:
            text = _listed(ranged, "has the range of its values", "have the range of their values")
            yield f"{text}. The experiment's records do not have the distribution"
        if others := [n for n in self._unknown if n not in known and n not in self._lost]:
            text = _listed(others, *no_parameter)
            yield f"{text}. The experiment's records do not have the distribution; {attribute}"
        if self._lost:
            text = _listed(self._lost, *no_parameter)
            yield f"{text}. The study has another kind from an earlier export; {attribute}"

    def run(self, adding: Adding) -> Exported:
        added = updated = 0
        changed = [trial for trial in self._trials if self._differs(trial)]
        for trial, rows in self._outcome.rows(changed):
            exported = self._exported.get(trial.trial_id)
            current = self._frozen(trial, rows)
            if exported is None or exported.state.is_finished():
                if exported is not None:
                    current.set_user_attr(_SUPERSEDES, exported.number)
                adding.add(current)
                added += 1
            else:
                self._bring_up_to_date(exported, current)
                updated += 1
        adding.flush()
        return Exported(
            study_name=self._study.study_name,
            added=added,
            updated=updated,
            unchanged=len(self._trials) - len(changed),
            without_distribution=self._unknown,
        )

    def _differs(self, trial: Trial) -> bool:
        """True if the study lacks the trial or some of its reports, or has another state."""
        exported = self._exported.get(trial.trial_id)
        if exported is None or exported.state != self._state(trial):
            return True
        return bool(exported.user_attrs.get(ITERATION) != trial.iteration)

    def _bring_up_to_date(self, exported: Any, current: Any) -> None:
        storage, name = self._storage, self._study.study_name
        study_id = storage.get_study_id_from_name(name)
        at = storage.get_trial_id_from_study_id_trial_number(study_id, exported.number)
        for step, value in current.intermediate_values.items():
            if step not in exported.intermediate_values:
                storage.set_trial_intermediate_value(at, step, value)
        for key, value in current.user_attrs.items():
            if exported.user_attrs.get(key) != value:
                storage.set_trial_user_attr(at, key, value)
        if exported.state != current.state:
            storage.set_trial_state_values(at, current.state, current.values)

    def _frozen(self, trial: Trial, rows: Sequence[Row]) -> Any:
        state = self._state(trial)
        params = self._params[trial.trial_id]
        kept = {name: kind for name, kind in self._distributions.items() if name in params}
        frozen = self._optuna.trial.create_trial(
            state=state,
            values=self._last(trial) if state.name in _WITH_VALUE else None,
            params=_values(self._optuna, params, kept),
            distributions=kept,
            user_attrs=self._attributes(trial, params, kept),
            intermediate_values=self._steps(rows),
        )
        if trial.reported_at and rows:
            frozen.datetime_start = _local(_began_at(rows[0], trial))
            if state.is_finished():
                frozen.datetime_complete = _local(trial.reported_at)
        return frozen

    def _state(self, trial: Trial) -> Any:
        """The state in Optuna: a trial that ended without a finite value counts as failed there.

        As after `study.tell(trial, state=PRUNED)`, a pruned trial has its last value.
        """
        states = self._optuna.trial.TrialState
        match trial.status:
            case Status.TERMINATED:
                is_pruned = self._outcome.stop_reason(trial) == StopReason.PRUNED
                if self._last(trial) is None and not (is_pruned and not trial.iteration):
                    return states.FAIL
                return states.PRUNED if is_pruned else states.COMPLETE
            case Status.ERROR:
                return states.FAIL
            case Status.PENDING if not trial.attempt:
                return states.WAITING
            case _:
                return states.RUNNING

    def _last(self, trial: Trial) -> list[float] | None:
        """The last value of each metric; None if one has no finite value."""
        values = values_of(trial, self._metrics)
        return None if values is None else list(values)

    def _steps(self, rows: Sequence[Row]) -> dict[int, float]:
        """The values by iteration, without infinite ones, which some databases refuse; NaN is
        kept. Optuna has none for several metrics."""
        if len(self._metrics) > 1:
            return {}
        (metric,) = self._metrics
        found = {row["training_iteration"]: numeric(row, metric) for row in rows}
        return {s: v for s, v in found.items() if v is not None and not math.isinf(v)}

    def _attributes(
        self, trial: Trial, params: Mapping[str, Any], kept: Mapping[str, Any]
    ) -> dict[str, Any]:
        metrics = columns_of(readable(dict(trial.row or {})))
        attributes = {
            TRIAL_ID: trial.trial_id,
            ITERATION: trial.iteration,
            f"{_OWN}folder": trial.spec.dirname,
            f"{_OWN}status": trial.status.value,
            f"{_OWN}stop_reason": self._outcome.stop_reason(trial),
            f"{_OWN}time_total_s": trial.time_total_s,
            **{name: value for name, value in metrics.items() if name not in self._metrics},
            **{f"config/{n}": value for n, value in params.items() if n not in kept},
        }
        if trial.error is not None:
            attributes[f"{_OWN}error"] = trial.error.headline
        return {name: _json_value(value) for name, value in attributes.items()}


def _local(at: float) -> datetime:
    """A time in Optuna's form: local, without a time zone."""
    return datetime.fromtimestamp(at).astimezone().replace(tzinfo=None)


def _json_value(value: Any) -> Any:
    """A value without NaN and infinity, which databases refuse in JSON."""
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return str(value) if is_odd else value


def _began_at(first: Row, trial: Trial) -> float:
    """The time of the first report, minus the duration of that iteration."""
    return float(first.get("timestamp", trial.reported_at) - first.get("time_this_iter_s", 0.0))


def _values(library: Any, config: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters in the form that their distributions have."""
    categorical = library.distributions.CategoricalDistribution
    return {
        name: simple(config[name]) if isinstance(kind, categorical) else config[name]
        for name, kind in kinds.items()
    }


def _distribution(library: Any, found: Distribution) -> Any:
    kinds = library.distributions
    if isinstance(found, Categories):
        return kinds.CategoricalDistribution(found.values)
    if found.is_whole:
        step = int(found.step or 1)
        return kinds.IntDistribution(int(found.low), int(found.high), found.is_log, step)
    return kinds.FloatDistribution(found.low, found.high, found.is_log, found.step)


def fanova(outcome: Outcome, metric: str, names: Sequence[str]) -> dict[str, float]:
    """The importance of the parameters that every trial with a value has.

    Raises OptunaMissing, ImportanceMissing.
    """
    optuna = _optuna("algorithm='fanova'")
    study = optuna.create_study(storage=optuna.storages.InMemoryStorage())
    trials = [t for t in outcome.trials.values() if value_of(t, metric) is not None]
    configs = [params_of(trial) for trial in trials]
    everywhere = [name for name in names if all(name in config for config in configs)]
    found = distributions(RecordedSpace(outcome.spec, trials).declared, everywhere, configs)
    made = {name: _distribution(optuna, one) for name, one in found.known.items()}
    for name in everywhere:  # a word inside a choice among dicts has no distribution of its own
        if name not in made:
            words = tuple(dict.fromkeys(simple(config[name]) for config in configs))
            made[name] = optuna.distributions.CategoricalDistribution(words)
    for trial, config in zip(trials, configs, strict=True):
        params = _values(optuna, config, made)
        study.add_trial(
            optuna.trial.create_trial(
                value=value_of(trial, metric), params=params, distributions=made
            )
        )
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    try:
        scores = optuna.importance.get_param_importances(
            study, evaluator=evaluator, params=list(made)
        )
    except ImportError as error:
        raise ImportanceMissing(
            f"algorithm='fanova' needs scikit-learn in addition to Optuna ({error}): "
            f"pip install scikit-learn, or use algorithm='rank'"
        ) from error
    return {name: float(value) for name, value in scores.items()}


def _optuna(what: str) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise OptunaMissing(OPTUNA.missing(what, error)) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
