"""The results of an experiment: its trials, the best one, and a table of all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.trial_folder import Row, TrialFolder, numeric, portable
from holdfast.experiment.records.rows import AUTOMATIC, columns_of, tag_columns
from holdfast.experiment.user_objects.stored_objects import ResolveConfig, config_without_code
from holdfast.results.ranking import (
    NoBestResult,
    Placed,
    check_mode,
    dataframe,
    goals_text,
    index_of_best,
    is_better,
    pareto_front,
    placed,
    reported_names,
)
from holdfast.results.result import (
    Result,
    has_reported_since_start,
    recorded_row,
    rows_of,
    trial_metrics,
)
from holdfast.scheduler.events import ExperimentSpec
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.stores.location import Location
from holdfast.text.trials import count_reasons, states_text, stop_reason, stop_sentence
from holdfast.trial.best import Confirmed, confirmed
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import CheckpointRecord, StopReason, Trial, TrialSpec

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")


SCOPES = ("last", "all", "avg", "last-5-avg", "last-10-avg")
# Why a trial has stopped that had no more to do.
_WHOLE = (StopReason.FINISHED, StopReason.STOPPER, StopReason.STOPPED)
_READERS = 16
_AHEAD = 64


class Scored(NamedTuple):
    """A trial and the value by which it is compared."""

    trial: Trial
    value: float


class Series(NamedTuple):
    """One metric of a trial, a value for each row (None where it is no number); `row` reads the
    row at an index."""

    values: Sequence[float | None]
    row: Callable[[int], Row]

    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of an experiment. Cheap to create: files are read on demand.

    `location` is the experiment's place in storage; `layout` its local directory, None if there is
    none. `is_over`: no process runs the experiment, so far as is known. `metric` and `mode` are
    the experiment's goal, None if it has none; `spec` are its settings.
    """

    trials: Mapping[str, Trial]
    location: Location
    layout: Layout | None
    spec: ExperimentSpec
    metric: str | None = None
    mode: str | None = None
    resolve_config: ResolveConfig = config_without_code
    is_over: bool = True
    _results: dict[str, Result] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def for_pickle(self) -> Outcome:
        """A copy that can be pickled. Files are read again after unpickling."""
        return replace(self, location=portable(self.location))

    def after_unpickle(self) -> Outcome:
        """A copy for this machine after unpickling: the original directory may be missing here."""
        here = self.layout is not None and self.layout.root.is_dir()
        return self if here else replace(self, layout=None)

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the RunConfig that the run began with."""
        tags: Mapping[str, str] = self.spec.options.get("tags", {})
        return tags

    def result(self, trial: Trial) -> Result:
        """The trial's result, the same object each time."""
        made = self._results.get(trial.trial_id)
        if made is None:
            made = Result.of_trial(
                trial,
                self.location,
                self.layout,
                self.resolve_config,
                tags=self.tags,
                stop_reason=self.stop_reason(trial),
                why=self.why_stopped(trial),
                kept=self.spec.checkpoint,
            )
            self._results[trial.trial_id] = made
        return made

    def stop_reason(self, trial: Trial) -> str:
        """The reason why it has stopped, in a word; "" for a trial that runs or waits."""
        return str(stop_reason(trial, is_live=not self.is_over) or "")

    def why_stopped(self, trial: Trial) -> str:
        """The reason why it has stopped, in a sentence; "" for a trial that runs or waits."""
        return stop_sentence(trial, self.spec.options, is_live=not self.is_over)

    def reachable(self, trial: Trial) -> Trial:
        """The trial without checkpoints that were not persisted and are not on this machine."""
        kept = tuple(
            record
            for record in trial.checkpoints
            if self._folder(trial.spec).checkpoint(record.dirname, persisted=record.persisted)
        )
        return replace(trial, checkpoints=kept)

    def checkpoint(self, spec: TrialSpec, record: CheckpointRecord) -> Checkpoint:
        """A checkpoint of a `reachable` trial: from storage if it is persisted, otherwise from
        this machine."""
        folder = self._folder(spec)
        here = folder.checkpoint(record.dirname, persisted=record.persisted)
        return here or Checkpoint.from_location(folder.location.child(record.dirname))

    def rows(self, trials: Sequence[Trial]) -> Iterator[tuple[Trial, list[Row]]]:
        """Each trial with the rows of every iteration. Raises StorageError, OSError."""

        def of(trial: Trial, folder: TrialFolder) -> list[Row]:
            recorded = [] if trial.row is None else [recorded_row(trial)]
            return rows_of(trial, folder).rows() or recorded

        return self._read(trials, of)

    def _series(self, trials: Sequence[Trial], metric: str) -> Iterator[tuple[Trial, Series]]:
        """Each trial with one metric of every iteration. Raises StorageError, OSError."""

        def of(trial: Trial, folder: TrialFolder) -> Series:
            rows = rows_of(trial, folder)
            if rows or trial.row is None:
                return Series(rows.numbers(metric), rows.row)
            recorded = recorded_row(trial)
            return Series([numeric(recorded, metric)], lambda _: recorded)

        return self._read(trials, of)

    def metrics(self, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Row]]:
        """Each trial with its `Result.metrics`. Raises StorageError, OSError."""
        return self._read(
            trials, lambda trial, folder: trial_metrics(trial, folder, self.resolve_config)
        )

    def _read(
        self, trials: Sequence[Trial], read: Callable[[Trial, TrialFolder], T]
    ) -> Iterator[tuple[Trial, T]]:
        """Read several trials at a time: a request to a bucket takes about 20 ms, mostly
        waiting."""

        def of(trial: Trial) -> tuple[Trial, T]:
            return trial, read(trial, self._folder(trial.spec))

        if self.layout is not None or len(trials) < 2:
            yield from map(of, trials)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_READERS, "holdfast-read") as pool:
            for at in range(0, len(trials), _AHEAD):
                yield from pool.map(of, trials[at : at + _AHEAD])

    def _folder(self, spec: TrialSpec) -> TrialFolder:
        return TrialFolder.of(spec, self.location, self.layout)

    def goal(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        """The goal in the arguments, else the experiment's. Raises InvalidConfig."""
        metric = metric or self.metric
        mode = mode or self.mode_of(metric)
        if metric is None and self.spec.goals:
            raise InvalidConfig(
                f"this run has several goals, {goals_text(self.spec.goals)}: use pareto_front(), "
                f"or name one metric"
            )
        if metric is None:
            names = self.reported()
            raise InvalidConfig(
                "no metric is given: pass it here, or in TuneConfig(metric=...) before fit(). "
                f"Reported metrics: {', '.join(names) or 'none'}"
            )
        if mode is None:
            raise InvalidConfig(
                f"no mode is given for the metric {metric!r}: 'max' or 'min', here or in "
                f"TuneConfig(mode=...) before fit()"
            )
        return metric, check_mode(mode)

    def mode_of(self, metric: str | None) -> str | None:
        """The mode of one of the experiment's goals; that of TuneConfig for another metric."""
        return self.spec.goals.get(metric or "") or self.mode

    def pareto_front(
        self, goals: Mapping[str, str] | None = None, *, with_unfinished: bool = False
    ) -> list[Placed]:
        """The trials that no other beats in all goals, the best by the first goal first.

        `goals` default to the experiment's. Trials that were stopped early, failed or have not
        ended count only `with_unfinished`, and those without a finite value of each goal never.
        Raises InvalidConfig.
        """
        goals = dict(goals or self.spec.goals)
        if not goals and self.metric is not None and self.mode is not None:
            goals = {self.metric: self.mode}
        if not goals:
            raise InvalidConfig(
                "this run has no goals: pass them, as {'accuracy': 'max', 'time_s': 'min'}"
            )
        for mode in goals.values():
            check_mode(mode)
        trials = list(self.trials.values())
        if not with_unfinished:
            trials = [trial for trial in trials if self.stop_reason(trial) in _WHOLE]
        return pareto_front(placed(trials, goals), goals)

    def best_result(
        self, metric: str, mode: str, scope: str = "last", filter_nan_and_inf: bool = True
    ) -> Result:
        """The result of the trial of `best_scored`; with the scope "all", of its best row."""
        best = self.best_scored(metric, mode, scope, filter_nan_and_inf)
        result = self.result(best.trial)
        return result.at_best(metric, mode) if scope == "all" else result

    def confirmed(self, metric: str | None, mode: str | None, scope: str) -> list[Confirmed]:
        """The configs that fresh runs confirm, the best mean first; none for another goal than the
        experiment's, by which they were chosen, and for another scope than "last"."""
        is_goal = (metric, mode) == (self.spec.metric, self.spec.mode) and scope == "last"
        return confirmed(self.trials.values(), metric, mode) if is_goal else []

    def best_scored(
        self, metric: str, mode: str, scope: str = "last", filter_nan_and_inf: bool = True
    ) -> Scored:
        """The trial with the best `metric`, and its value. After fresh runs: the trial that they
        have confirmed, and their mean. A fresh run itself is never the best.

        Raises NoBestResult, InvalidConfig for an unknown scope.

        `scope` says which value of a trial counts: its "last" one, the best of "all", the average
        of all ("avg"), or of the last 5 or 10 ("last-5-avg", "last-10-avg"). NaN is never better
        than a number. With `filter_nan_and_inf`, NaN and infinite values cannot win at all: "all"
        skips them, and an average that includes one does not count.
        """
        if scope not in SCOPES:
            raise InvalidConfig(f"scope must be one of {SCOPES}, not {scope!r}")
        won = next(iter(self.confirmed(metric, mode, scope)), None)
        if won is not None and won.mean is not None:
            return Scored(self.trials[won.trial_id], won.mean)
        best: Scored | None = None
        seen = 0
        for trial, values in self._values(metric, scope):
            value = _score(values, scope, mode, finite=filter_nan_and_inf)
            seen += bool(values)
            if (
                trial.is_infeasible
                or trial.spec.confirms in self.trials
                or value is None
                or (filter_nan_and_inf and not math.isfinite(value))
            ):
                continue
            if best is None or is_better(value, best.value, mode):
                best = Scored(trial, value)
        if best is None and any(trial.is_infeasible for trial in self.trials.values()):
            raise NoBestResult("every trial violates a constraint of the search", metric)
        if best is None:
            raise self._no_best(metric, seen)
        return best

    def _values(self, metric: str, scope: str) -> Iterator[tuple[Trial, list[float]]]:
        """Each trial that reported, with its values of `metric`: one for "last", otherwise all."""
        in_files = []
        for trial in self._reporting():
            value = numeric(recorded_row(trial), metric) if scope == "last" else None
            if value is not None and has_reported_since_start(trial):
                yield trial, [value]
            else:
                # For "last", files are also read if the newest report may not be the one that
                # counts: it lacks the metric, or the attempt was rolled back and has not reported
                # again.
                in_files.append(trial)
        for trial, series in self._series(in_files, metric):
            yield trial, series.known()

    def _no_best(self, metric: str, seen: int) -> NoBestResult:
        reporting, states = self._reporting(), self.states() or "there is no trial"
        if not reporting:
            errors = (trial.error for trial in self.trials.values() if trial.error is not None)
            first = next((f". The first error was: {error.headline}" for error in errors), "")
            return NoBestResult(f"no trial has reported anything: {states}{first}", metric)
        names = reported_names(map(recorded_row, reporting))
        if seen:
            message = f"{metric!r} is NaN or infinite in all {seen} trials that reported it"
        else:
            message = f"no trial reported a number {metric!r} ({states})"
        return NoBestResult(f"{message}. Reported metrics: {', '.join(names)}", metric, names)

    def _reporting(self) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.row is not None]

    def reported(self) -> list[str]:
        """The names of the metrics that the trials have reported, without holdfast's own."""
        names = reported_names(map(recorded_row, self._reporting()))
        return [name for name in names if name not in AUTOMATIC]

    def states(self) -> str:
        """The number of trials by state, in the words of the terminal: `3 finished, 1 failed`."""
        trials, is_live = self.trials.values(), not self.is_over
        reasons = count_reasons(trials, is_live=is_live)
        return states_text(
            Counter(trial.shown_status for trial in trials),
            is_live=is_live,
            reasons=reasons,
            interrupted=reasons.get(StopReason.INTERRUPTED, 0),
        )

    def table(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """`lines` as a DataFrame. Raises PandasMissing, InvalidConfig, NoBestResult."""
        return dataframe(self.lines(metric, mode))

    def lines(self, metric: str | None = None, mode: str | None = None) -> list[Row]:
        """A line for each trial: its last row or, with `metric`, its row with the best value.

        Columns: metrics with nested ones as `a/b`, `experiment_tag`, the run's tags as `tag/data`,
        the config as `config/lr`, `stop_reason`, `logdir`, what the trial has used as
        `usage/cpu_s`, and the trial that it `confirms`, if the experiment has fresh runs. With a
        `metric`, trials without such a row are left out. Raises InvalidConfig, NoBestResult.
        """
        if metric is None and mode is not None:
            raise InvalidConfig(f"mode={mode!r} has no meaning without a metric: pass both")
        if metric is None:
            found = list(self.metrics(list(self.trials.values())))
        else:
            found = self._best_rows(*self.goal(metric, mode))
        return [
            {
                **self._flat(trial, row),
                "stop_reason": self.stop_reason(trial),
                **({"confirms": trial.spec.confirms} if self.spec.confirm else {}),
                **_usage_columns(trial),
            }
            for trial, row in found
        ]

    def report_lines(self) -> list[Row]:
        """A line for each report of each trial, with the columns of `lines`."""
        return [
            self._flat(trial, row)
            for trial, rows in self.rows(list(self.trials.values()))
            for row in rows
        ]

    def _best_rows(self, metric: str, mode: str) -> list[tuple[Trial, Row]]:
        found, seen = [], 0
        for trial, series in self._series(self._reporting(), metric):
            seen += bool(series.known())
            at = index_of_best(series.values, mode)
            if at is not None:
                found.append((trial, series.row(at)))
        if not found:
            raise self._no_best(metric, seen)
        return found

    def _flat(self, trial: Trial, row: Row) -> Row:
        metrics = {key: value for key, value in row.items() if key != "config"}
        config = columns_of({"config": self.resolve_config(trial.config)})
        logdir = self.location.child(trial.spec.dirname).path
        tags = {"experiment_tag": trial.spec.tag, **tag_columns(self.tags)}
        return {**columns_of(metrics), **tags, **config, "logdir": logdir}


def _usage_columns(trial: Trial) -> Row:
    usage = trial.usage
    known = {} if usage is None else usage.columns()
    return {f"usage/{name}": value for name, value in known.items()}


def _score(values: Sequence[float], scope: str, mode: str, *, finite: bool) -> float | None:
    """The value that counts for the scope, from values oldest first; None if there is none."""
    if not values:
        return None
    match scope:
        case "last":
            return values[-1]
        case "all":
            counted = [v for v in values if not math.isnan(v) and (math.isfinite(v) or not finite)]
            return (max if mode == "max" else min)(counted, default=math.nan)
        case _:
            few = {"last-5-avg": 5, "last-10-avg": 10}.get(scope, len(values))
            counted = list(values[-few:])
            return sum(counted) / len(counted)
