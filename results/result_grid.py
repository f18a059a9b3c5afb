"""`ResultGrid`, the return value of `fit()`, and `ExperimentAnalysis`, that of `tune.run`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, overload

from holdfast.compat import ray_path
from holdfast.compat.advice import explained_attribute
from holdfast.experiment.callbacks.trial_view import Searched, Surroundings, TrialView
from holdfast.experiment.folder.layout import SNAPSHOT_PREFIX
from holdfast.experiment.folder.trial_folder import Row
from holdfast.experiment.records.rows import AUTOMATIC, columns_of
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.experiment.user_objects.stored_objects import (
    Completed,
    ResolveConfig,
    config_without_code,
)
from holdfast.names import printable
from holdfast.results.outcome import Outcome
from holdfast.results.ranking import (
    NoBestResult,
    analysed,
    check_mode,
    dataframe,
    reported_names,
)
from holdfast.results.reading import load_experiment
from holdfast.results.result import Result, recorded_row
from holdfast.results.short_errors import short_errors
from holdfast.text.trials import state_word
from holdfast.text.values import aligned, format_cell
from holdfast.trial.best import Confirmed
from holdfast.trial.errors import InvalidConfig, TrialError
from holdfast.trial.metrics import lookup
from holdfast.trial.trial import Status, Trial

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import pyarrow.fs

    from holdfast.experiment.progress.scheduler_facts import RungCount, TakeoverFact
    from holdfast.results.importance import Importances
    from holdfast.results.optuna_study import Exported
    from holdfast.results.plots import GridPlots
    from holdfast.syncer.checkpoint.checkpoint import Checkpoint


_log = logging.getLogger(__name__)


class AnalysedTrial(TrialView):
    """A trial of an ExperimentAnalysis, with its reported values."""

    def __init__(
        self,
        trial: Trial,
        surroundings: Surroundings,
        rows: Callable[[], Iterator[tuple[Trial, list[Row]]]],
    ) -> None:
        super().__init__(trial, surroundings)
        self._rows = rows

    @cached_property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """Of each metric that has been a number: `max`, `min`, `last`, and the averages `avg` (of
        all), `last-5-avg` and `last-10-avg`. Reads the trial's rows."""
        ((_, rows),) = self._rows()
        return analysed(rows)


class ExperimentAnalysis:
    """The trials of an experiment, and the best among them.

    `experiment_checkpoint_path` is the experiment's directory (or a snapshot in it): a local path,
    a URI, or a path on `storage_filesystem`. `trials` selects some trials (views, or ids).
    `default_metric` and `default_mode` replace those in the experiment's TuneConfig. If several
    experiments were run under one name, this is the newest, or number `run` (from 1). In configs,
    the user's objects that are not plain data are placeholders.

    Raises ExperimentNotFound, InvalidConfig (NoSuchRun, for one), StorageError.
    """

    @short_errors
    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: pyarrow.fs.FileSystem | None = None,
        trials: Sequence[TrialView | str] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        run: int | None = None,
    ) -> None:
        folder = _experiment_folder(experiment_checkpoint_path)
        read = load_experiment(folder, storage_filesystem, run)
        made = outcome_of(read, metric=default_metric, mode=default_mode, only=trials)
        self._hold(made)

    @classmethod
    def of(
        cls, experiment: ExperimentView, resolve_config: ResolveConfig = config_without_code
    ) -> Self:
        """The analysis of an experiment that was read already; reads nothing.

        `resolve_config` returns a config with the user's own objects; objects that it does not
        resolve become placeholders.
        """
        return cls.of_outcome(outcome_of(experiment, Completed(resolve_config)))

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> Self:
        """The analysis of results that a ResultGrid has."""
        analysis = cls.__new__(cls)
        analysis._hold(outcome)
        return analysis

    def _hold(self, outcome: Outcome) -> None:
        path = outcome.location.path
        self._outcome = outcome
        self._surroundings = Surroundings(
            trainable_name=outcome.spec.trainable,
            experiment_path=path,
            local_experiment_path=path if outcome.layout is None else str(outcome.layout.root),
            config_of=lambda trial: outcome.resolve_config(trial.config),
            row_of=lambda trial: outcome.result(trial).metrics or {},
            checkpoint_of=outcome.checkpoint,
            searched=Searched(outcome.spec.space),
        )

    def __getstate__(self) -> tuple[Outcome]:
        """A pickle has the same content as that of a ResultGrid."""
        return (self._outcome.for_pickle(),)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._hold(state[0].after_unpickle())

    if not TYPE_CHECKING:  # a type checker should report the attribute itself

        def __getattr__(self, name: str) -> Any:
            return explained_attribute(self, name)

    @property
    def outcome(self) -> Outcome:
        """The trials and their locations, from which a ResultGrid is made."""
        return self._outcome

    @property
    def default_metric(self) -> str | None:
        """The metric of the `TuneConfig`; None if it has none."""
        return self._outcome.metric

    @property
    def default_mode(self) -> str | None:
        """ "min" or "max", as in the `TuneConfig`; None if it has none."""
        return self._outcome.mode

    @property
    def experiment_path(self) -> str:
        """The experiment's directory on its filesystem: `bucket/...` for S3."""
        return self._outcome.location.path

    @cached_property
    def trials(self) -> list[AnalysedTrial]:
        """Every trial, in the order of their numbers. Each has a `metric_analysis`."""
        return [self._view(trial) for trial in self._outcome.trials.values()]

    @property
    def results(self) -> dict[str, Row]:
        """The last row of each trial, by trial id."""
        read = self._outcome.metrics(list(self._outcome.trials.values()))
        return {trial.trial_id: row for trial, row in read}

    @property
    def results_df(self) -> pandas.DataFrame:
        """`results` as a table by trial id, nested values under `a/b`. Raises PandasMissing."""
        return _by_trial(self.results)

    @property
    def trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """A table of every iteration for each trial, by trial id. Raises PandasMissing."""
        read = self._outcome.rows(list(self._outcome.trials.values()))
        return {t.trial_id: dataframe([columns_of(row) for row in rows]) for t, rows in read}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """A line for each trial: its last row or, with `metric` and `mode`, its row with the best
        value.

        Columns: metrics with nested ones as `a/b`, the config as `config/lr`, and `logdir`. Raises
        PandasMissing, InvalidConfig, NoBestResult.
        """
        return self._outcome.table(metric if mode is not None else None, mode)

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """The config of each trial by trial id; with `prefix` flat, as in `config/net/width`."""
        configs = {trial.trial_id: trial.config for trial in self.trials}
        if not prefix:
            return configs
        return {name: columns_of({"config": config}) for name, config in configs.items()}

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> AnalysedTrial | None:
        """The best trial; None, and a warning with the reason, if there is none.

        The arguments are those of `ResultGrid.get_best_result`; a single trial is the best without
        a metric, too. Raises InvalidConfig.
        """
        if len(self.trials) == 1 and metric is None and self.default_metric is None:
            return self.trials[0]
        metric, mode = self._outcome.goal(metric, mode)
        try:
            best = self._outcome.best_scored(metric, mode, scope, filter_nan_and_inf)
        except NoBestResult as error:
            _log.warning("no best trial: %s", error)
            return None
        return self._view(best.trial)

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """The config of the best trial; None if there is none. Raises InvalidConfig."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_checkpoint(
        self, trial: TrialView | str, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """The checkpoint of `trial` (or of the trial with that id) with the best `metric`.

        By default by the experiment's goal; without a goal, the newest one. None, and a warning
        with the reason, if there is none. Raises InvalidConfig.
        """
        metric = metric or self.default_metric or "training_iteration"
        mode = check_mode(mode or self.default_mode or "max")
        try:
            return self._outcome.result(self._trial(trial)).get_best_checkpoint(metric, mode)
        except NoBestResult as error:
            _log.warning("no best checkpoint: %s", error)
            return None

    def get_last_checkpoint(
        self,
        trial: TrialView | str | None = None,
        metric: str = "training_iteration",
        mode: str = "max",
    ) -> Checkpoint | None:
        """The newest checkpoint of `trial`, by default of the best trial by `metric`.

        None if there is none. Raises InvalidConfig.
        """
        chosen = self.get_best_trial(metric, mode) if trial is None else trial
        return None if chosen is None else self._outcome.result(self._trial(chosen)).checkpoint

    @property
    def best_trial(self) -> AnalysedTrial | None:
        """The best trial by the experiment's goal. Raises InvalidConfig if it has no goal."""
        return self.get_best_trial(*self._outcome.goal(None, None))

    @property
    def best_config(self) -> dict[str, Any] | None:
        """The config of `best_trial`."""
        best = self.best_trial
        return None if best is None else best.config

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of `best_trial`."""
        best = self.best_trial
        return None if best is None else self.get_best_checkpoint(best)

    @property
    def best_result(self) -> Row | None:
        """The last row of `best_trial`."""
        best = self.best_trial
        return None if best is None else best.last_result

    @property
    def best_result_df(self) -> pandas.DataFrame | None:
        """`best_result` as a table of one line, by trial id. Raises PandasMissing."""
        best = self.best_trial
        return None if best is None else _by_trial({best.trial_id: best.last_result})

    @property
    def best_dataframe(self) -> pandas.DataFrame | None:
        """Every iteration of `best_trial`. Raises PandasMissing."""
        best = self.best_trial
        if best is None:
            return None
        ((_, rows),) = self._outcome.rows([self._trial(best)])
        return dataframe([columns_of(row) for row in rows])

    def _view(self, trial: Trial) -> AnalysedTrial:
        rows = partial(self._outcome.rows, [trial])
        return AnalysedTrial(self._outcome.reachable(trial), self._surroundings, rows)

    def _trial(self, trial: TrialView | str) -> Trial:
        trial_id = trial if isinstance(trial, str) else trial.trial_id
        return _known(trial_id, self._outcome.trials)

    def __repr__(self) -> str:
        outcome = self._outcome
        states = outcome.states() or "empty"
        return f"ExperimentAnalysis({outcome.location}: {len(outcome.trials)} trials, {states})"


def _experiment_folder(path: str | os.PathLike[str]) -> str:
    """The experiment's folder; the path may be that of a snapshot, as in Ray."""
    text = os.fspath(path)
    above, _, name = text.rpartition("/")
    is_snapshot = name.startswith(SNAPSHOT_PREFIX) and name.endswith(".json")
    return (above or ".") if is_snapshot else text


def _known(trial_id: str, trials: Mapping[str, Trial]) -> Trial:
    if trial_id not in trials:
        raise InvalidConfig(
            f"there is no trial {trial_id!r}; the trials are {', '.join(list(trials)[:20])}"
        )
    return trials[trial_id]


def _by_trial(rows: Mapping[str, Row]) -> pandas.DataFrame:
    flat = [{**columns_of(row), "trial_id": name} for name, row in rows.items()]
    return dataframe(flat).set_index("trial_id")


_TABLE_ROWS = 20
_TABLE_METRICS = 4


class PageFrame(Protocol):
    """The page in a notebook. `url` has its token."""

    @property
    def url(self) -> str: ...
    def _repr_html_(self) -> str: ...


class ResultGrid(Sequence[Result]):
    """The results of `fit()`: one Result for each trial, in the order of their numbers."""

    def __init__(self, experiment_analysis: ExperimentAnalysis) -> None:
        self._outcome = experiment_analysis.outcome
        self._trials = tuple(self._outcome.trials.values())

    def __getstate__(self) -> Outcome:
        """A pickle has the same content as a pickled Result of each trial."""
        return self._outcome.for_pickle()

    def __setstate__(self, outcome: Outcome) -> None:
        self._outcome = outcome.after_unpickle()
        self._trials = tuple(outcome.trials.values())

    def __len__(self) -> int:
        return len(self._trials)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        """The result of trial number `index`; a slice gives a list."""
        if isinstance(index, slice):
            return [self._outcome.result(trial) for trial in self._trials[index]]
        try:
            trial = self._trials[index]
        except IndexError:
            raise IndexError(
                f"index {index} is out of range: there are {len(self)} results"
            ) from None
        return self._outcome.result(trial)

    def __iter__(self) -> Iterator[Result]:
        return map(self._outcome.result, self._trials)

    @property
    def analysis(self) -> ExperimentAnalysis:
        """The same results as `tune.run` returns them."""
        return ExperimentAnalysis.of_outcome(self._outcome)

    @short_errors
    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The result of the best trial; a single trial is the best without a metric.

        `metric` (`a/b` for a nested one) and `mode` ("max" or "min") default to those of
        TuneConfig. `scope` says which value of a trial counts: its "last" one, the best of "all",
        or the average of all, the last 5 or the last 10 ("avg", "last-5-avg", "last-10-avg"). With
        "all", the result is of the trial's best row: its `metrics` are that row, and its
        `checkpoint` was reported with it, or is the newest before it (with a warning). Otherwise
        they are the newest row and the newest checkpoint, as in Ray. After fresh runs (`confirm`
        of TuneConfig) the best by the run's own goal is the trial whose config has the best mean
        of them: see `confirmed`. Trials whose value is NaN or
        infinite cannot win, unless `filter_nan_and_inf` is False; NaN never beats a number.

        Raises InvalidConfig (no metric or mode, or several goals: see `pareto_front`) or
        NoBestResult, which names the reported metrics.
        """
        if len(self) == 1 and metric is None and self._outcome.metric is None:
            return self[0]
        metric, mode = self._outcome.goal(metric, mode)
        return self._outcome.best_result(metric, mode, scope, filter_nan_and_inf)

    @property
    def confirmed(self) -> list[Confirmed]:
        """What the fresh runs of TuneConfig(confirm=...) have shown of each config, the best mean
        first; empty without such runs."""
        outcome = self._outcome
        return outcome.confirmed(outcome.spec.metric, outcome.spec.mode, "last")

    @property
    @short_errors
    def best(self) -> Result:
        """The result of the best trial by the metric and mode of TuneConfig.

        The same as `get_best_result()`; raises what that raises.
        """
        return self.get_best_result()

    @short_errors
    def pareto_front(
        self, goals: Mapping[str, str] | None = None, *, with_unfinished: bool = False
    ) -> list[Result]:
        """The results that no other beats in all goals at once, the best by the first goal first.

        `goals` has each metric with its mode, `{"accuracy": "max", "time_s": "min"}`; default:
        those of a search or a scheduler with several metrics. Last values count. Left out are
        trials that lack one of the metrics and, unless `with_unfinished`, those that failed, have
        not ended, or were stopped early by a scheduler or a time budget.

        Raises InvalidConfig.
        """
        front = self._outcome.pareto_front(goals, with_unfinished=with_unfinished)
        return [self._outcome.result(one.trial) for one in front]

    @short_errors
    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> pandas.DataFrame:
        """A line for each trial: its last row or, with `filter_metric`, its row with the best
        value.

        Columns: metrics with nested ones as `a/b`, `experiment_tag`, the run's tags as `tag/data`,
        the config as `config/lr`, `logdir`, and what the trial has used as `usage/cpu_s`.
        `filter_mode` defaults to that of TuneConfig. Raises PandasMissing, NoBestResult.
        """
        if filter_mode is None and ray_path.is_active():
            filter_metric = None  # as Ray, which then takes the last rows
        return self._outcome.table(filter_metric, filter_mode)

    def to_arrow(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> pyarrow.Table:
        """`get_dataframe` as an Arrow table, without pandas.

        Containers are JSON text, and a column with values of several types has them as text.
        Raises NoBestResult.
        """
        from holdfast.results.tables import arrow_table

        return arrow_table(self._outcome.lines(filter_metric, filter_mode))

    def to_optuna(
        self,
        storage: Any,
        study_name: str | None = None,
        *,
        metric: str | None = None,
        mode: str | None = None,
    ) -> Exported:
        """Write the trials to an Optuna storage, for optuna-dashboard and Optuna's plots.

        `storage` is a URL such as "sqlite:///trials.db", or a storage object of Optuna. The study
        has the experiment's name unless `study_name` is given. A repeated call adds new trials and
        updates unfinished ones. Each trial has its parameters with the distributions of the search
        space, `metric` (default: TuneConfig's) of every iteration as intermediate values, its
        state, and the rest of its config and metrics as user attributes. After a search or a
        scheduler with several metrics, the study has a direction and a value for each of them
        (and no intermediate values), unless `metric` names one.

        Raises OptunaMissing (`pip install optuna`), InvalidConfig.
        """
        from holdfast.results.optuna_study import export

        goals = self._outcome.spec.goals if metric is None and mode is None else {}
        goals = goals or dict([self._outcome.goal(metric, mode)])
        return export(self._outcome, storage, study_name=study_name, goals=goals)

    @property
    def plot(self) -> GridPlots:
        """Pictures, with matplotlib: `results.plot.learning_curves()`,
        `.parallel_coordinates()`, `.importance()`, `.pareto()`, `.rungs()`, `.population()`. Each
        returns its Axes."""
        from holdfast.results.plots import GridPlots

        return GridPlots(self._outcome)

    def web(self, *, height: int = 800, base_url: str = "") -> PageFrame:
        """The live page of this experiment: in a notebook a frame of this `height` in pixels below
        the cell, elsewhere its URL is printed.

        Its server is a process that ends with this one, and several calls share it. `base_url`:
        where Jupyter's proxy serves a port of this machine, such as "/proxy/{port}", if the
        browser does not reach this machine itself; JupyterHub's is known.

        Raises WebMissing without Starlette and uvicorn, WebFailed, InvalidConfig for a filesystem
        object that no URI describes.
        """
        # By name: the page stands above this room.
        frame = import_module("holdfast.web.frame")
        return cast("PageFrame", frame.shown(self.uri, height=height, base_url=base_url))

    def importances(
        self,
        metric: str | None = None,
        *,
        params: Sequence[str] | None = None,
        algorithm: str = "auto",
    ) -> Importances:
        """The importance of each varied parameter for the last `metric` (default: TuneConfig's).

        `algorithm`: "rank" (the share of the variance of the metric's ranks, needs no library),
        "forest" (permutation importance of a random forest, needs scikit-learn), "fanova"
        (computed by Optuna), or "auto": "forest" if scikit-learn is installed and ten trials have
        the metric, otherwise "rank". Failed trials count with their last finite value.

        If there are too few trials to say anything about that many parameters, there are no
        scores; if no score is above what chance alone gives (`chance`), the result says so. In
        both cases `note` says how many trials there are and would be needed, and a warning is
        logged.

        Raises InvalidConfig, ImportanceMissing, OptunaMissing.
        """
        found = self.plot.weighed(metric, params=params, algorithm=algorithm)
        if found.note:
            _log.warning("%s", printable(found.note))
        return found

    def rungs(self) -> list[RungCount]:
        """The number of trials that reached each rung, were promoted, and were stopped.

        Raises InvalidConfig if none did, as with a scheduler without rungs.
        """
        return self.plot.rung_counts()

    def takeovers(self) -> list[TakeoverFact]:
        """The takeovers of a population, with the changes of configs; the oldest first.

        Raises InvalidConfig if none did.
        """
        return self.plot.takeover_facts()

    @property
    def errors(self) -> list[TrialError]:
        """The errors of the trials that failed for good."""
        failed = (trial for trial in self._trials if trial.status is Status.ERROR)
        found = (self._outcome.result(trial).error for trial in failed)
        return [error for error in found if error is not None]

    @property
    def num_errors(self) -> int:
        """The number of trials that failed for good."""
        return sum(trial.status is Status.ERROR for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        """The number of trials that ended without an error."""
        return sum(trial.status is Status.TERMINATED for trial in self._trials)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the run, from its RunConfig."""
        return dict(self._outcome.tags)

    @property
    def experiment_path(self) -> str:
        """The experiment's directory on `filesystem`."""
        return self._outcome.location.path

    @property
    def uri(self) -> str | None:
        """The experiment's directory as text to paste anywhere, without credentials.

        `tune.load`, `Tuner.restore` and `holdfast show` accept it. Its form is that of
        `Checkpoint.uri`: an absolute path, or a URI with the query that names a custom endpoint.
        None for a filesystem object that no URI describes.
        """
        return self._outcome.location.uri

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """The pyarrow filesystem that the results are on."""
        return self._outcome.location.arrow()[0]

    def _repr_html_(self) -> str:
        from holdfast.experiment.progress.summarizer import summary_of
        from holdfast.experiment.progress.summary import RunFacts
        from holdfast.results.notebook_html import ROWS, grid_html

        outcome = self._outcome
        place = outcome.location.public
        facts = RunFacts(
            name=outcome.location.path.rstrip("/").rpartition("/")[2],
            path=place,
            local_path=place if outcome.layout is None else str(outcome.layout.root),
        )
        summary = summary_of(list(self._trials), facts, outcome.spec, max_rows=ROWS)
        return grid_html(summary, place, is_live=not outcome.is_over)

    if not TYPE_CHECKING:  # a type checker should report the attribute itself

        def __getattr__(self, name: str) -> Any:
            return explained_attribute(self, name)

    def __repr__(self) -> str:
        states = self._outcome.states() or "empty"
        head = f"ResultGrid: {len(self)} trials ({states}) in {self._outcome.location}"
        shown = self._trials[:_TABLE_ROWS]
        rows = [recorded_row(trial) for trial in shown]
        names = [name for name in reported_names(rows) if name not in AUTOMATIC][:_TABLE_METRICS]
        lines = [["trial", "status", "iteration", *names]]
        for trial, row in zip(shown, rows, strict=True):
            cells = [format_cell(lookup(row, name)) for name in names]
            word = state_word(trial.shown_status, self._outcome.stop_reason(trial))
            lines.append([trial.trial_id, word, str(trial.iteration), *cells])
        more = len(self) - len(shown)
        rest = [f"... and {more} more"] if more else []
        return "\n".join([head, *(aligned(lines) if shown else ()), *rest])


def outcome_of(
    experiment: ExperimentView,
    resolve_config: ResolveConfig = config_without_code,
    *,
    metric: str | None = None,
    mode: str | None = None,
    only: Iterable[TrialView | str] | None = None,
) -> Outcome:
    """The trials, results and files of an experiment.

    `metric` and `mode` replace those of its TuneConfig. `only`: these trials, by default the one
    that the user named, or all. Raises InvalidConfig.
    """
    trials: Mapping[str, Trial] = dict(experiment.machine.trials)
    if only is None and experiment.only:
        only = [experiment.only]
    if only is not None:
        ids = [trial if isinstance(trial, str) else trial.trial_id for trial in only]
        trials = {trial_id: _known(trial_id, trials) for trial_id in ids}
    spec = experiment.machine.spec
    mode = mode or spec.mode
    return Outcome(
        trials=trials,
        location=experiment.location,
        layout=experiment.layout,
        spec=spec,
        metric=metric or spec.metric,
        mode=mode and check_mode(mode),
        resolve_config=resolve_config,
        is_over=experiment.condition(time.time()) is not Condition.LIVE,
    )


def results_of(experiment: ExperimentView) -> ResultGrid:
    """The results of an experiment as `fit()` returns them, with placeholders for the user's
    objects."""
    return ResultGrid(ExperimentAnalysis.of(experiment))


def front_of(experiment: ExperimentView) -> tuple[str, ...]:
    """The trials that no other beats in all goals; none unless it has several."""
    front = outcome_of(experiment).pareto_front() if experiment.machine.spec.goals else ()
    return tuple(one.trial.trial_id for one in front)
