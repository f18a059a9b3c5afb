"""The return value of `fit()`: the results of all trials."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from holdfast import ray_path
from holdfast.experiment.results.outcome import Outcome
from holdfast.experiment.results.ranking import AUTOMATIC, reported_names
from holdfast.experiment.results.result import Result
from holdfast.experiment.results.short_errors import short_errors
from holdfast.experiment.results.stored_trial import recorded_row
from holdfast.names import printable
from holdfast.replaced import explained_attribute
from holdfast.text.trials import state_word
from holdfast.text.values import aligned, format_cell
from holdfast.trial.errors import TrialError
from holdfast.trial.metrics import lookup
from holdfast.trial.trial import Status

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import pyarrow.fs

    from holdfast.experiment.progress.scheduler_facts import RungCount, TakeoverFact
    from holdfast.experiment.results.analysis import ExperimentAnalysis
    from holdfast.experiment.results.exporting.optuna_study import Exported
    from holdfast.experiment.results.importance import Importances
    from holdfast.experiment.results.plots import GridPlots

_log = logging.getLogger(__name__)
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
        from holdfast.experiment.results.analysis import ExperimentAnalysis

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
        they are the newest row and the newest checkpoint, as in Ray. Trials whose value is NaN or
        infinite cannot win, unless `filter_nan_and_inf` is False; NaN never beats a number.

        Raises InvalidConfig (no metric or mode, or several goals: see `pareto_front`) or
        NoBestResult, which names the reported metrics.
        """
        if len(self) == 1 and metric is None and self._outcome.metric is None:
            return self[0]
        metric, mode = self._outcome.goal(metric, mode)
        return self._outcome.best_result(metric, mode, scope, filter_nan_and_inf)

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
        from holdfast.experiment.results.exporting.tables import arrow_table

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
        from holdfast.experiment.results.exporting.optuna_study import export

        goals = self._outcome.spec.goals if metric is None and mode is None else {}
        goals = goals or dict([self._outcome.goal(metric, mode)])
        return export(self._outcome, storage, study_name=study_name, goals=goals)

    @property
    def plot(self) -> GridPlots:
        """Pictures, with matplotlib: `results.plot.learning_curves()`,
        `.parallel_coordinates()`, `.importance()`, `.pareto()`, `.rungs()`, `.population()`. Each
        returns its Axes."""
        from holdfast.experiment.results.plots import GridPlots

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
        """How many trials reached each rung of the scheduler, were promoted, and were stopped.

        Raises InvalidConfig if none did, as with a scheduler without rungs.
        """
        return self.plot.rung_counts()

    def takeovers(self) -> list[TakeoverFact]:
        """Which trial of a population continued from which, and what changed; the oldest first.

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
        from holdfast.experiment.results.grid_html import grid_html

        return grid_html(self._outcome)

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
