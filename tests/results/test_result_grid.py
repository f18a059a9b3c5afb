"""The results of all trials: which is best, and a table of them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pyarrow.fs import LocalFileSystem

from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.records.view import ExperimentView
from holdfast.experiment.user_objects.stored_objects import UsersValues
from holdfast.results.ranking import NoBestResult
from holdfast.results.result import Result
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.scheduler.machine import Machine
from holdfast.syncer.stores.location import Location
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status, Trial, TrialSpec
from holdfast.trial.values import Opaque, Ref
from tests.results.reported import run as run
from tests.rig.runs.recorded import RecordedExperiment

NAN, INF = math.nan, math.inf


@pytest.fixture
def goal_run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp", metric="loss", mode="min")
    yield recorded
    recorded.close()


def grid_of(run: RecordedExperiment, **given: Any) -> ResultGrid:
    read = ExperimentView(machine=run.machine, location=run.location, layout=run.layout)
    return ResultGrid(ExperimentAnalysis.of(read, **given))


def curve(run: RecordedExperiment, values: Sequence[float], **config: Any) -> str:
    """A finished trial that reported these losses."""
    trial_id = run.begin(config)
    for value in values:
        run.report(trial_id, {"loss": value, "nested": {"acc": -value}})
    run.finish(trial_id)
    return trial_id


def best(run: RecordedExperiment, **asked: Any) -> str:
    """The id of the best trial."""
    run.write_files()
    metrics = grid_of(run).get_best_result(**asked).metrics
    assert metrics is not None
    return str(metrics["trial_id"])


def test_a_grid_is_a_sequence_of_results_in_the_order_of_the_trials(
    run: RecordedExperiment,
) -> None:
    for value in (3.0, 1.0, 2.0):
        curve(run, [value], lr=value)
    run.write_files()
    grid = grid_of(run)
    assert len(grid) == 3
    assert [result.config for result in grid] == [{"lr": 3.0}, {"lr": 1.0}, {"lr": 2.0}]
    assert grid[-1].config == {"lr": 2.0}
    assert [result.config for result in grid[1:]] == [{"lr": 1.0}, {"lr": 2.0}]
    assert isinstance(grid[0], Result)
    with pytest.raises(IndexError, match="index 3 is out of range: there are 3 results"):
        grid[3]


def test_a_result_is_the_same_object_each_time(run: RecordedExperiment) -> None:
    curve(run, [1.0])
    grid = grid_of(run)
    assert grid[0] is grid[0] is next(iter(grid))


@pytest.mark.parametrize(
    ("scope", "mode", "curves", "winner"),
    [
        ("last", "min", [[1.0, 5.0], [4.0, 3.0]], 1),
        ("last", "max", [[1.0, 5.0], [4.0, 3.0]], 0),
        ("all", "min", [[1.0, 5.0], [4.0, 3.0]], 0),
        ("all", "max", [[1.0, 5.0], [9.0, 3.0]], 1),
        ("all", "min", [[NAN, 1.0, -INF], [2.0]], 0),
        ("avg", "min", [[1.0, 5.0, 6.0], [4.0, 3.0, 2.0]], 1),
        ("avg", "max", [[0.0, 0.0, 9.0], [4.0, 4.0, 4.0]], 1),
        ("last-5-avg", "min", [[99.0, 1, 1, 1, 1, 1], [1.0, 2, 2, 2, 2, 2]], 0),
        ("last-10-avg", "min", [[99.0, 1, 1, 1, 1, 1], [1.0, 2, 2, 2, 2, 2]], 1),
        ("last-5-avg", "min", [[2.0, 4.0], [3.5]], 0),
    ],
)
def test_each_scope_counts_what_it_says(
    run: RecordedExperiment, scope: str, mode: str, curves: list[list[float]], winner: int
) -> None:
    ids = [curve(run, values) for values in curves]
    assert best(run, metric="loss", mode=mode, scope=scope) == ids[winner]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize(
    ("scope", "bad"),
    [
        ("last", [1.0, NAN]),
        ("last", [1.0, INF]),
        ("last", [1.0, -INF]),
        ("all", [NAN, NAN]),
        ("avg", [0.0, NAN]),
        ("avg", [0.0, INF, -INF]),
        ("last-5-avg", [NAN, 0.0]),
        ("last", [True, True]),
        ("all", [True, False]),
    ],
)
def test_nan_infinite_values_and_truths_never_win(
    run: RecordedExperiment, mode: str, scope: str, bad: list[float]
) -> None:
    curve(run, bad)
    fine = curve(run, [2.0, 2.0])
    curve(run, bad)
    assert best(run, metric="loss", mode=mode, scope=scope) == fine


def test_without_the_filter_infinity_wins_and_nan_still_does_not(run: RecordedExperiment) -> None:
    curve(run, [NAN])
    curve(run, [5.0])
    infinite = curve(run, [-INF])
    assert (
        best(run, metric="loss", mode="min", filter_nan_and_inf=False)
        == best(run, metric="loss", mode="min", scope="all", filter_nan_and_inf=False)
        == infinite
    )


def test_metric_and_mode_default_to_those_of_the_experiment(goal_run: RecordedExperiment) -> None:
    curve(goal_run, [2.0])
    low = curve(goal_run, [1.0])
    high = curve(goal_run, [3.0])
    assert best(goal_run) == low
    assert best(goal_run, mode="max") == high
    assert best(goal_run, metric="nested/acc", mode="max") == low


def test_a_metric_that_is_not_in_every_report_counts_by_the_last_that_has_it(
    run: RecordedExperiment,
) -> None:
    rare = run.begin()
    run.report(rare, {"loss": 1.0, "eval": 0.9})
    run.report(rare, {"loss": 0.9})
    common = run.begin()
    run.report(common, {"loss": 1.0, "eval": 0.5})
    assert best(run, metric="eval", mode="max") == rare


def test_a_row_that_was_rolled_back_does_not_count(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=1))
    rolled = run.begin()
    run.report(rolled, {"loss": 5.0}, checkpoint="committed")
    run.report(rolled, {"loss": 0.1})
    run.fail(rolled)
    run.start(rolled)
    steady = curve(run, [1.0])
    assert best(run, metric="loss", mode="min") == steady
    run.close()


def test_the_last_scope_reads_no_file(run: RecordedExperiment) -> None:
    low = curve(run, [1.0])
    curve(run, [2.0])
    grid = grid_of(run)
    assert not (run.folder(low) / RESULTS).exists()
    found = grid.get_best_result("loss", "min")
    assert found.path == str(run.folder(low))


def test_without_a_metric_the_error_lists_what_was_reported(run: RecordedExperiment) -> None:
    curve(run, [1.0])
    curve(run, [2.0])
    with pytest.raises(
        InvalidConfig, match=r"TuneConfig\(metric=.*Reported metrics: loss, nested/a"
    ):
        grid_of(run).get_best_result()


def test_without_a_mode_the_error_says_so(run: RecordedExperiment) -> None:
    curve(run, [1.0])
    with pytest.raises(InvalidConfig, match="no mode is given for the metric 'loss'"):
        grid_of(run).get_best_result("loss")


def test_a_single_trial_is_the_best_without_a_metric(run: RecordedExperiment) -> None:
    trial_id = curve(run, [1.0])
    assert best(run) == trial_id


@pytest.mark.parametrize("scope", ["last", "all", "avg"])
def test_a_metric_that_no_trial_reported_is_reported_with_those_there_are(
    run: RecordedExperiment, scope: str
) -> None:
    curve(run, [1.0])
    curve(run, [1.0])
    with pytest.raises(
        NoBestResult,
        match=r"no trial reported a number 'los' \(2 finished\).*Reported metrics: lo",
    ) as caught:
        best(run, metric="los", mode="min", scope=scope)
    assert isinstance(caught.value, RuntimeError)
    assert "nested/acc" in caught.value.reported


def test_a_metric_that_is_nan_in_all_trials_is_reported(run: RecordedExperiment) -> None:
    curve(run, [NAN])
    curve(run, [INF])
    with pytest.raises(NoBestResult, match="'loss' is NaN or infinite in all 2 trials"):
        best(run, metric="loss", mode="min")


def test_a_run_without_reports_is_explained_with_the_first_error(run: RecordedExperiment) -> None:
    run.fail(run.begin(), "ImportError", "no module named torch")
    run.begin()
    with pytest.raises(
        NoBestResult, match=r"1 failed, 1 interrupted.*ImportError: no module named torch"
    ):
        best(run, metric="loss", mode="min")


def test_an_unknown_scope_or_mode_is_refused(run: RecordedExperiment) -> None:
    curve(run, [1.0])
    with pytest.raises(InvalidConfig, match=r"scope must be one of .*'last-10-avg'.*not 'first'"):
        grid_of(run).get_best_result("loss", "min", scope="first")
    with pytest.raises(InvalidConfig, match="mode must be 'max' or 'min', not 'best'"):
        grid_of(run).get_best_result("loss", "best")


def test_the_dataframe_has_metrics_config_and_logdir(run: RecordedExperiment) -> None:
    first = curve(run, [3.0, 2.0], lr=0.1, net={"width": 8, "layers": [4, 2]})
    curve(run, [1.0], lr=0.2, net={"width": 16, "layers": [4]})
    run.write_files()
    frame = grid_of(run).get_dataframe()
    assert list(frame["loss"]) == [2.0, 1.0]
    assert list(frame["nested/acc"]) == [-2.0, -1.0]
    assert list(frame["config/lr"]) == [0.1, 0.2]
    assert list(frame["config/net/width"]) == [8, 16]
    assert list(frame["config/net/layers"]) == [[4, 2], [4]]
    assert frame["logdir"][0] == str(run.folder(first))
    assert {"training_iteration", "trial_id", "done", "time_this_iter_s"} <= set(frame.columns)
    assert not any(name == "config" for name in frame.columns)


def test_a_filtered_dataframe_has_the_best_row_of_each_trial(goal_run: RecordedExperiment) -> None:
    run = goal_run
    curve(run, [3.0, 1.0, NAN, 2.0], lr=1)
    curve(run, [5.0, 6.0], lr=2)
    run.suggest({"lr": 3})
    run.write_files()
    grid = grid_of(run)
    frame = grid.get_dataframe(filter_metric="loss", filter_mode="min")
    assert list(frame["loss"]) == [1.0, 5.0]
    assert list(frame["training_iteration"]) == [2, 1]
    assert list(frame["config/lr"]) == [1, 2]
    assert list(grid.get_dataframe("loss", "max")["loss"]) == [3.0, 6.0]
    assert list(grid.get_dataframe("loss")["loss"]) == [1.0, 5.0]
    assert list(grid.get_dataframe()["config/lr"]) == [1, 2, 3]


def test_a_dataframe_filtered_by_what_no_one_reported_is_refused(run: RecordedExperiment) -> None:
    curve(run, [3.0])
    run.write_files()
    with pytest.raises(NoBestResult, match="no trial reported a number 'los'"):
        grid_of(run).get_dataframe("los", "min")
    with pytest.raises(InvalidConfig, match="mode='min' has no meaning without a metric"):
        grid_of(run).get_dataframe(filter_mode="min")
    with pytest.raises(InvalidConfig, match="no mode is given"):
        grid_of(run).get_dataframe("loss")


def test_errors_are_counted_and_listed(run: RecordedExperiment) -> None:
    curve(run, [1.0])
    run.fail(run.begin(), message="first")
    run.fail(run.begin(), message="second")
    run.begin()
    grid = grid_of(run)
    assert (grid.num_errors, grid.num_terminated) == (2, 1)
    assert [error.failure.message for error in grid.errors] == ["first", "second"]
    assert [result.error is not None for result in grid] == [False, True, True, False]


def test_a_failure_that_is_retried_is_not_an_error_of_the_trial(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=1))
    run.fail(run.begin(), exits=False)
    grid = grid_of(run)
    assert run.trial("d2a66_00000").error is not None
    assert grid.errors == []
    assert grid[0].error is None
    run.close()


def test_configs_have_the_users_objects_where_fit_resolves_them(run: RecordedExperiment) -> None:
    encoder = object()
    run.begin({"encoder": Ref(path=("encoder",), index=None, summary="object")})
    grid = grid_of(run, resolve_config=lambda config: {**config, "encoder": encoder})
    assert grid[0].config == {"encoder": encoder}
    assert grid.get_dataframe()["config/encoder"][0] is encoder


def test_what_fit_cannot_resolve_is_a_placeholder(run: RecordedExperiment) -> None:
    run.begin({"model": Opaque(pickled=b"", summary="Model")})
    config = grid_of(run, resolve_config=dict)[0].config
    assert config is not None
    assert repr(config["model"]) == "<model: a stored Model, load() unpickles it>"


def test_the_dataframe_has_the_resolved_config_and_not_that_of_the_rows(
    run: RecordedExperiment,
) -> None:
    trial_id = run.begin({"encoder": Ref(path=("encoder",), index=None, summary="dict")})
    run.report(trial_id, {"loss": 1.0})
    run.write_files()
    grid = grid_of(run, resolve_config=lambda _: {"encoder": {"size": 3}})
    frame = grid.get_dataframe("loss", "min")
    assert [name for name in frame.columns if name.startswith("config")] == ["config/encoder/size"]


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_grid_comes_back_from_its_pickle(
    run: RecordedExperiment, dumps: Callable[[Any], bytes]
) -> None:
    curve(run, [1.0, 0.5])
    curve(run, [2.0])
    run.fail(run.begin({"kept": {1: {2}}}), message="first")
    run.write_files()
    grid = grid_of(run)
    assert list(grid)  # made, and left behind
    back: ResultGrid = pickle.loads(dumps(grid))
    assert repr(back) == repr(grid)
    assert [result.metrics for result in back] == [result.metrics for result in grid]
    assert back.get_best_result("loss", "min").metrics == grid[0].metrics
    assert back.get_dataframe().equals(grid.get_dataframe())
    assert [str(error) for error in back.errors] == [str(error) for error in grid.errors]
    assert (back.num_errors, back.num_terminated) == (1, 2)
    assert back.experiment_path == grid.experiment_path
    assert isinstance(back.filesystem, LocalFileSystem)


def test_a_pickled_grid_carries_the_users_values_once(run: RecordedExperiment) -> None:
    for _ in range(20):
        run.begin({"data": Ref(path=("data",), index=None, summary="bytes")})
    values = UsersValues({"data": bytearray(100_000)}, unpickles=True)
    data = pickle.dumps(grid_of(run, resolve_config=values))
    assert len(data) < 200_000
    back: ResultGrid = pickle.loads(data)
    assert [result.config for result in back] == [{"data": bytearray(100_000)}] * 20
    assert len(pickle.dumps(list(back))) < 200_000


def test_the_repr_is_a_short_table(run: RecordedExperiment) -> None:
    for value in range(30):
        curve(run, [value / 3])
    lines = repr(grid_of(run)).splitlines()
    assert len(lines) == 23
    assert lines[0].startswith("ResultGrid: 30 trials (30 finished) in ")
    assert lines[1].split() == ["trial", "status", "iteration", "loss", "nested/acc"]
    assert lines[3].split() == ["d2a66_00001", "finished", "1", "0.3333", "-0.3333"]
    assert lines[-1] == "... and 10 more"


def test_ten_thousand_trials_make_no_results_until_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    of_trial = Result.of_trial

    def counted(trial: Trial, *rest: Any, **given: Any) -> Result:
        made.append(trial.trial_id)
        return of_trial(trial, *rest, **given)

    monkeypatch.setattr(Result, "of_trial", counted)
    machine = Machine()
    for index in range(10_000):
        name = f"d2a66_{index:05d}"
        spec = TrialSpec(trial_id=name, index=index, name=name, dirname=name, config={})
        machine.trials[name] = Trial(
            spec=spec,
            status=Status.TERMINATED,
            iteration=1,
            row={"loss": float(-index)},
            reported_at=1.0,
        )
    location = Location.resolve(tmp_path, None, {})
    read = ExperimentView(machine=machine, location=location, layout=Layout(tmp_path))
    grid = ResultGrid(ExperimentAnalysis.of(read))
    assert len(grid) == 10_000
    assert grid.get_best_result("loss", "min") is grid[9_999]
    assert made == ["d2a66_09999"]


def test_with_scope_all_metrics_and_checkpoint_are_those_of_the_best_row(
    run: RecordedExperiment,
) -> None:
    trial_id = run.begin()
    for loss in (3.0, 1.0, 2.0):
        run.report(trial_id, {"loss": loss}, checkpoint="committed")
    run.finish(trial_id)
    run.write_files()
    grid = grid_of(run)
    best = grid.get_best_result("loss", "min", scope="all")
    assert best.metrics is not None
    assert (best.metrics["loss"], best.metrics["training_iteration"]) == (1.0, 2)
    assert best.checkpoint is not None
    assert Path(best.checkpoint.path, "model.txt").read_text() == "model of iteration 2"
    assert best.checkpoint_iteration == 2
    assert "training_iteration=2" in repr(best)
    again = pickle.loads(pickle.dumps(best))
    assert (again.metrics["loss"], again.checkpoint.path) == (1.0, best.checkpoint.path)
    # As in Ray, otherwise both are the newest.
    newest = grid.get_best_result("loss", "min")
    assert newest.metrics is not None
    assert (newest.metrics["loss"], newest.checkpoint_iteration) == (2.0, 3)


@pytest.mark.parametrize(
    ("with_checkpoint", "iteration", "told"),
    [
        ({1, 3}, 1, "has no stored checkpoint; `checkpoint` is that of iteration 1"),
        ({3}, None, "has no stored checkpoint; there is none before it"),
        ({2}, 2, ""),
        (set(), None, ""),
    ],
)
def test_a_best_row_without_a_checkpoint_of_its_own_says_which_one_is_given(
    run: RecordedExperiment,
    caplog: pytest.LogCaptureFixture,
    with_checkpoint: set[int],
    iteration: int | None,
    told: str,
) -> None:
    trial_id = run.begin()
    for number, loss in enumerate((3.0, 1.0, 2.0), start=1):
        kind = "committed" if number in with_checkpoint else ""
        run.report(trial_id, {"loss": loss}, checkpoint=kind)
    run.finish(trial_id)
    run.write_files()
    best = grid_of(run).get_best_result("loss", "min", scope="all")
    assert best.checkpoint_iteration == iteration
    assert (best.checkpoint is None) == (iteration is None)
    assert bool(caplog.records) == bool(told)
    assert told in caplog.text


@pytest.mark.parametrize(("kept", "iteration"), [({4, 5}, 4), ({2, 5}, 2), ({1, 3}, 2)])
def test_of_equal_best_rows_the_first_with_a_kept_checkpoint_is_best(
    run: RecordedExperiment, kept: set[int], iteration: int
) -> None:
    trial_id = run.begin()
    for number, acc in enumerate((0.5, 0.9, 0.8, 0.9, 0.9, 0.7), start=1):
        run.report(trial_id, {"acc": acc}, checkpoint="committed" if number in kept else "")
    run.finish(trial_id)
    run.write_files()
    best = grid_of(run).get_best_result("acc", "max", scope="all")
    assert best.metrics is not None
    assert (best.metrics["acc"], best.metrics["training_iteration"]) == (0.9, iteration)
    assert best.checkpoint_iteration == (iteration if iteration in kept else 1)
