"""Exports an experiment's trials to an Optuna storage, for optuna-dashboard and Optuna's plots.

A repeated export adds new trials and updates unfinished ones. Optuna never changes a finished
trial: one that was resumed since then is added again, with a note of the trial that it supersedes.

Optuna is imported on use.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.trial_folder import Row, numeric
from holdfast.experiment.records.rows import columns_of
from holdfast.lazy import OPTUNA
from holdfast.results.importance import ImportanceMissing
from holdfast.results.outcome import Outcome
from holdfast.results.ranking import params_of, reported_names, values_of
from holdfast.syncer.errors import redact
from holdfast.text.values import counted
from holdfast.trial.best import value_of
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.trial import Status, StopReason, Trial
from holdfast.trial.values import readable

if TYPE_CHECKING:
    import optuna

    from holdfast.results.optuna_tables import Adding


_log = logging.getLogger(__name__)
# The tables that `Adding` knows: those of Optuna 3.2 to 5.
_SCHEMA = "v3.2.0.a"
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
    adding = None
    if type(database) is optuna.storages.RDBStorage and database.get_current_version() == _SCHEMA:
        from holdfast.results.optuna_tables import Adding

        adding = Adding(study, database)
    done = writer.run(adding)
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
        from holdfast.results.optuna_space import RecordedSpace, distributions

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
        self._distributions = self._compatible(made.known, exported)
        self._lost = [name for name in made.known if name not in self._distributions]
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

    def run(self, adding: Adding | None) -> Exported:
        """Trials pass through `adding`, or through Optuna's `add_trial`."""
        added = updated = 0
        add = self._study.add_trial if adding is None else adding.add
        changed = [trial for trial in self._trials if self._differs(trial)]
        for trial, rows in self._outcome.rows(changed):
            exported = self._exported.get(trial.trial_id)
            current = self._frozen(trial, rows)
            if exported is None or exported.state.is_finished():
                if exported is not None:
                    current.set_user_attr(_SUPERSEDES, exported.number)
                add(current)
                added += 1
            else:
                self._bring_up_to_date(exported, current)
                updated += 1
        if adding is not None:
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
        from holdfast.results.optuna_space import values_in

        state = self._state(trial)
        params = self._params[trial.trial_id]
        kept = {name: kind for name, kind in self._distributions.items() if name in params}
        frozen = self._optuna.trial.create_trial(
            state=state,
            values=self._last(trial) if state.name in _WITH_VALUE else None,
            params=values_in(kept, params),
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


def fanova(outcome: Outcome, metric: str, names: Sequence[str]) -> dict[str, float]:
    """The importance of the parameters that every trial with a value has.

    Raises OptunaMissing, ImportanceMissing.
    """
    optuna = _optuna("algorithm='fanova'")
    from holdfast.results.optuna_space import RecordedSpace, categories, distributions, values_in

    study = optuna.create_study(storage=optuna.storages.InMemoryStorage())
    trials = [t for t in outcome.trials.values() if value_of(t, metric) is not None]
    configs = [params_of(trial) for trial in trials]
    everywhere = [name for name in names if all(name in config for config in configs)]
    declared = RecordedSpace(outcome.spec, trials).declared
    made = dict(distributions(declared, everywhere, configs).known)
    for name in everywhere:  # a word inside a choice among dicts has no distribution of its own
        if name not in made:
            made[name] = categories(config[name] for config in configs)
    for trial, config in zip(trials, configs, strict=True):
        frozen = optuna.trial.create_trial(
            value=value_of(trial, metric), params=values_in(made, config), distributions=made
        )
        study.add_trial(frozen)
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
