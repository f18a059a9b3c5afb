"""Reads an experiment from its records and files, without its code: running, ended or damaged,
here or in storage."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from holdfast.experiment.callbacks.trial_view import Searched, Surroundings, TrialView
from holdfast.experiment.folder.layout import SNAPSHOT_PREFIX
from holdfast.experiment.folder.row_lines import Row
from holdfast.experiment.records.rows import columns_of
from holdfast.experiment.results.outcome import Outcome
from holdfast.experiment.results.ranking import NoBestResult, analysed, check_mode, dataframe
from holdfast.experiment.results.read_experiment import ExperimentNotFound as ExperimentNotFound
from holdfast.experiment.results.read_experiment import ReadExperiment as ReadExperiment
from holdfast.experiment.results.read_experiment import load_experiment as load_experiment
from holdfast.experiment.results.short_errors import short_errors
from holdfast.experiment.user_objects.stored_objects import (
    Completed,
    ResolveConfig,
    config_without_code,
)
from holdfast.replaced import explained_attribute
from holdfast.syncer.uploader.lock import current_holder
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Trial

if TYPE_CHECKING:
    import pandas
    import pyarrow.fs

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
        self._hold(_outcome(read, config_without_code, default_metric, default_mode, trials))

    @classmethod
    def of(
        cls,
        experiment: ReadExperiment,
        resolve_config: ResolveConfig = config_without_code,
        *,
        only: Sequence[str] | None = None,
        is_live: bool | None = None,
    ) -> Self:
        """The analysis of an experiment that was read already; reads nothing.

        `resolve_config` returns a config with the user's own objects; objects that it does not
        resolve become placeholders. `only`: the ids of the trials to include. `is_live`: whether a
        process runs the experiment; None asks its lock on this machine.
        """
        return cls.of_outcome(
            _outcome(experiment, Completed(resolve_config), only=only, is_live=is_live)
        )

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


def _outcome(
    experiment: ReadExperiment,
    resolve_config: ResolveConfig,
    metric: str | None = None,
    mode: str | None = None,
    only: Iterable[TrialView | str] | None = None,
    is_live: bool | None = None,
) -> Outcome:
    trials: Mapping[str, Trial] = dict(experiment.machine.trials)
    if only is not None:
        ids = [trial if isinstance(trial, str) else trial.trial_id for trial in only]
        trials = {trial_id: _known(trial_id, trials) for trial_id in ids}
    machine, layout = experiment.machine, experiment.layout
    spec = machine.spec
    mode = mode or spec.mode
    return Outcome(
        trials=trials,
        location=experiment.location,
        layout=layout,
        spec=spec,
        metric=metric or spec.metric,
        mode=mode and check_mode(mode),
        resolve_config=resolve_config,
        is_over=_is_over(experiment) if is_live is None else not is_live,
    )


def _is_over(experiment: ReadExperiment) -> bool:
    layout = experiment.layout
    is_free = layout is not None and not current_holder(layout.lock)
    return experiment.machine.finished or experiment.is_followed or is_free


def _known(trial_id: str, trials: Mapping[str, Trial]) -> Trial:
    if trial_id not in trials:
        raise InvalidConfig(
            f"there is no trial {trial_id!r}; the trials are {', '.join(list(trials)[:20])}"
        )
    return trials[trial_id]


def _by_trial(rows: Mapping[str, Row]) -> pandas.DataFrame:
    flat = [{**columns_of(row), "trial_id": name} for name, row in rows.items()]
    return dataframe(flat).set_index("trial_id")
