"""A function as the trainable: what it may report, and what not."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import re
import socket
import warnings
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import train, tune
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.tune.schedulers import MultiObjectiveASHAScheduler

REFUSED = "which nothing would run here: write an ordinary function that runs it"


async def learn(config: dict[str, Any], data: int = 0) -> None:
    tune.report({"loss": 1})


async def stream(config: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"loss": 1}


class Model(tune.Trainable):
    async def step(self) -> dict[str, Any]:  # type: ignore[override]
        return {"loss": 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: learn,
        lambda: stream,
        lambda: Model,
        lambda: functools.partial(learn, data=1),
        lambda: tune.with_parameters(learn, data=1),
        lambda: tune.with_resources(learn, {"cpu": 1}),
        lambda: train.DataParallelTrainer(learn),
    ],
)
def test_an_async_function_is_refused_before_anything_runs(make: Any, fit: Any) -> None:
    with pytest.raises(InvalidConfig, match=REFUSED):
        fit(make())


@pytest.mark.process
@pytest.mark.parametrize("function", [learn, stream])
def test_what_hides_an_async_function_fails_its_trial(function: Any, fit: Any) -> None:
    (result,) = fit(lambda config: function(config))
    assert f"{function.__name__}() is async" in str(result.error)
    assert REFUSED in str(result.error)


@pytest.mark.process
def test_a_training_loop_that_has_not_run_fails(trainer: Any) -> None:
    def loop(config: dict[str, Any]) -> Any:
        yield {"loss": 1}

    with pytest.raises(train.TrainingFailedError, match=REFUSED):
        trainer(loop, workers=1).fit()


@pytest.mark.process
def test_a_function_that_runs_it_reports(fit: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (result,) = fit(lambda config: asyncio.run(learn(config)))
    assert result.metrics["loss"] == 1


AUTOMATIC = {
    "training_iteration",
    "time_this_iter_s",
    "time_total_s",
    "timestamp",
    "date",
    "trial_id",
    "done",
    "pid",
    "hostname",
    "node_ip",
    "iterations_since_restore",
    "time_since_restore",
    "should_checkpoint",
    "checkpoint_dir_name",
    "config",
}


class TorchLike:
    """A scalar like torch's: only `item` returns its number."""

    def item(self) -> float:
        return 0.25


def checkpoint_of(text: str) -> tune.Checkpoint:
    directory = tune.staging_directory()
    Path(directory, "state.txt").write_text(text)
    return tune.Checkpoint.from_directory(directory)


# -- metrics ----------------------------------------------------------------------------------


def train_with_many_kinds(config: dict[str, Any]) -> None:
    for iteration in range(3):
        tune.report(
            {
                "loss": np.float32(1.5) / (iteration + 1),
                "steps": np.int64(7),
                "good": np.bool_(True),
                "zero_dimensional": np.array(3.0),
                "vector": np.array([1, 2, 3]),
                "torch": TorchLike(),
                "text": "fine",
                "nothing": None,
                "broken": float("nan"),
                "net": {"layer": {"norm": 0.5, "depth": np.int32(2)}},
            }
        )


@pytest.fixture(scope="module")
def many_kinds(shared_fit: Any) -> tune.Result:
    space = {"lr": 0.1, "net": {"width": 8}}
    result: tune.Result = shared_fit(train_with_many_kinds, space)[0]
    return result


def rows_of(result: tune.Result) -> list[dict[str, Any]]:
    lines = Path(result.path, "result.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_row_carries_the_automatic_metrics(many_kinds: tune.Result) -> None:
    rows = rows_of(many_kinds)
    assert [row["training_iteration"] for row in rows] == [1, 2, 3]
    assert [row["iterations_since_restore"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row.keys() >= AUTOMATIC
        assert row["config"] == {"lr": 0.1, "net": {"width": 8}}
        assert row["hostname"] == socket.gethostname()
        assert row["pid"] not in (0, os.getpid())
        assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", row["date"])
    assert rows[-1]["time_total_s"] == pytest.approx(sum(r["time_this_iter_s"] for r in rows))


def test_result_metrics_are_the_last_row_with_tag_and_done(many_kinds: tune.Result) -> None:
    metrics = many_kinds.metrics
    assert metrics is not None
    assert metrics.keys() >= AUTOMATIC | {"experiment_tag"}
    assert metrics["training_iteration"] == 3
    assert metrics["done"] is True
    assert metrics["trial_id"] in many_kinds.path


def test_nested_none_and_nan_metrics_are_kept_as_they_are(many_kinds: tune.Result) -> None:
    row = rows_of(many_kinds)[-1]
    assert row["net"] == {"layer": {"norm": 0.5, "depth": 2}}
    assert row["nothing"] is None
    assert math.isnan(row["broken"])
    frame = many_kinds.metrics_dataframe
    assert frame is not None
    assert list(frame["net/layer/depth"]) == [2, 2, 2]


# -- what is returned or yielded --------------------------------------------------------------


def test_a_returned_dict_or_number_is_the_last_report(shared_fit: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        if config["returns"] == "dict":
            tune.report({"score": 1})
            return {"score": 2}
        return np.float64(0.5)

    results = shared_fit(train, {"returns": tune.grid_search(["dict", "number"])})
    assert [row["score"] for row in rows_of(results[0])] == [1, 2]
    assert results[1].metrics["_metric"] == 0.5
    assert results.num_errors == 0


GOAL: dict[str, Any] = {"metric": "score", "mode": "max"}
GOALS: dict[str, Any] = {"metrics": ["score", "size"], "modes": ["max", "min"]}


@pytest.mark.parametrize("returned", [0.75, np.float32(0.75), np.array(0.75), Fraction(3, 4)])
def test_a_returned_number_is_the_final_value_of_the_metric(fit: Any, returned: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        for epoch in range(2):
            tune.report({"score": 0.5, "epoch": epoch})
        return returned

    result = fit(train, {}, tune.TuneConfig(**GOAL)).best
    rows = [(row["training_iteration"], row["score"], row["epoch"]) for row in rows_of(result)]
    assert rows == [(1, 0.5, 0), (2, 0.5, 1), (3, 0.75, 1)]


def test_a_returned_number_that_was_reported_last_is_no_further_iteration(fit: Any) -> None:
    def train(config: dict[str, Any]) -> float:
        score = math.nan if config["nan"] else 0.25
        tune.report({"score": score})
        return score

    for result in fit(train, {"nan": tune.grid_search([False, True])}, tune.TuneConfig(**GOAL)):
        assert [row["training_iteration"] for row in rows_of(result)] == [1]


def test_each_number_that_a_generator_yields_is_an_iteration(fit: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        yield from (1, 1, 2)

    result = fit(train, {}, tune.TuneConfig(**GOAL))[0]
    assert [row["score"] for row in rows_of(result)] == [1, 1, 2]


def test_a_returned_tuple_has_the_values_of_several_goals(fit: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        return np.float64(config["x"]), 1 - config["x"]

    goals = tune.TuneConfig(scheduler=MultiObjectiveASHAScheduler(**GOALS))
    results = fit(train, {"x": tune.grid_search([0, 1])}, goals)
    assert [(one.metrics["score"], one.metrics["size"]) for one in results] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("returned", [(1, 2, 3), 1.0, "good", True])
def test_what_is_no_value_of_the_goals_is_refused_by_name(fit: Any, returned: Any) -> None:
    goals = tune.TuneConfig(scheduler=MultiObjectiveASHAScheduler(**GOALS))
    (error,) = fit(lambda config: returned, {}, goals).errors
    assert "reported nothing, and returned" in str(error)
    assert "for each of score, size" in str(error)


def test_a_returned_status_of_hyperopt_that_says_fail_is_never_the_best(fit: Any) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        given = {"score": 9.0} if config["x"] == 1 else {}
        return {"status": "fail", **given} if config["x"] < 2 else {"status": "ok", "score": 1.0}

    results = fit(train, {"x": tune.grid_search([0, 1, 2])}, tune.TuneConfig(**GOAL))
    assert results.best.config == {"x": 2}
    assert all(math.isnan(one.metrics["score"]) for one in results[:2])
    assert results.num_errors == 0


def test_each_dict_that_a_generator_yields_is_a_report(fit: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        for number in range(3):
            yield {"number": number}

    result = fit(train)[0]
    assert [row["number"] for row in rows_of(result)] == [0, 1, 2]


def test_a_returned_object_is_not_an_error_and_the_log_says_that_it_is_not_kept(fit: Any) -> None:
    def train(config: dict[str, Any]) -> object:
        tune.report({"a": 1})
        return TorchLike

    results = fit(train)
    assert results.num_errors == 0
    assert "returned" in Path(results[0].path, "stderr").read_text()


# -- bad input --------------------------------------------------------------------------------


NAMED = {
    "no dict": "not list",
    "object": "'model/weights'",
    "key": "'fine'",
    "huge": "'count'",
    "data": "'image' is an array of 1,001,000 values",
    "text": "'file'",
    "no checkpoint": "not str",
    "missing directory": "/nowhere/at/all",
}


def report_badly(config: dict[str, Any]) -> None:
    case = config["case"]
    if case == "no dict":
        tune.report(["loss", 1])  # type: ignore[arg-type]
    elif case == "object":
        tune.report({"fine": 1, "model": {"weights": object()}})
    elif case == "key":
        tune.report({"fine": {(1, 2): 3}})
    elif case == "huge":
        tune.report({"count": 2**64})
    elif case == "data":
        tune.report({"image": np.zeros((1001, 1000))})
    elif case == "text":
        tune.report({"file": "name in another code \udc80"})
    elif case == "no checkpoint":
        tune.report({"a": 1}, checkpoint="/tmp")  # type: ignore[arg-type]
    elif case == "missing directory":
        tune.report({"a": 1}, checkpoint=tune.Checkpoint("/nowhere/at/all"))
    else:
        with pytest.raises(TuneError, match="loss"):
            tune.report({"loss": object()})
        tune.report({"loss": 1})


@pytest.fixture(scope="module")
def reported_badly(shared_fit: Any) -> dict[str, tune.Result]:
    cases = [*NAMED, "caught"]
    results = shared_fit(report_badly, {"case": tune.grid_search(cases)})
    return {result.config["case"]: result for result in results}


@pytest.mark.parametrize(("case", "named"), NAMED.items())
def test_a_bad_report_fails_its_trial_naming_what_is_wrong_and_the_users_line(
    reported_badly: dict[str, tune.Result], case: str, named: str
) -> None:
    error = reported_badly[case].error
    assert isinstance(error, tune.TrialError)
    assert named in error.failure.message
    frames = [line for line in error.failure.traceback.splitlines() if line.startswith("  File")]
    assert "report_badly" in frames[0]
    assert "tune.report(" in error.failure.traceback


def test_a_refused_report_can_be_caught_and_counts_as_no_iteration(
    reported_badly: dict[str, tune.Result],
) -> None:
    result = reported_badly["caught"]
    assert result.error is None
    assert [row["training_iteration"] for row in rows_of(result)] == [1]


@pytest.mark.parametrize("option", ["checkpoint_frequency", "checkpoint_at_end"])
def test_options_that_only_a_class_can_follow_are_refused_for_a_function(option: str) -> None:
    options: dict[str, Any] = {option: 1}
    config = tune.RunConfig(checkpoint_config=tune.CheckpointConfig(**options))
    with pytest.raises(InvalidConfig, match=option):
        tune.Tuner(train_with_many_kinds, run_config=config)


@pytest.mark.parametrize("trainable", [3, None, dict, lambda: None, lambda a, b: None])
def test_what_is_not_a_trainable_is_refused_when_the_tuner_is_made(trainable: Any) -> None:
    with pytest.raises(InvalidConfig):
        tune.Tuner(trainable)


# -- checkpoints ------------------------------------------------------------------------------


def test_checkpoints_are_kept_by_score_where_nan_and_none_are_never_best(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        for score in (0.1, float("nan"), 0.9, None, 0.5, 0.2):
            metrics = {} if score is None else {"score": score}
            tune.report({"a": 1, **metrics}, checkpoint=checkpoint_of(str(score)))

    config = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(train, checkpoint_config=config)[0]
    kept = {path.name: (path / "state.txt").read_text() for path in checkpoints_in(result)}
    assert kept == {
        "checkpoint_000002": "0.9",
        "checkpoint_000004": "0.5",
        "checkpoint_000005": "0.2",
    }
    assert Path(result.checkpoint.path).name == "checkpoint_000005"
    best = result.get_best_checkpoint("score", "max")
    assert Path(best.path, "state.txt").read_text() == "0.9"


def checkpoints_in(result: tune.Result) -> list[Path]:
    return sorted(Path(result.path).glob("checkpoint_*"))


def test_a_checkpoint_from_the_staging_directory_is_moved_not_copied(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        directory = tune.staging_directory()
        file = Path(directory, "weights.bin")
        file.write_bytes(b"w" * 1_000_000)
        inode = file.stat().st_ino
        tune.report({"inode": inode}, checkpoint=tune.Checkpoint.from_directory(directory))
        tune.report({"inode": inode, "gone": not Path(directory).exists()})

    result = fit(train)[0]
    assert result.metrics["gone"] is True
    assert Path(result.checkpoint.path, "weights.bin").stat().st_ino == result.metrics["inode"]


def test_get_checkpoint_is_none_at_first_and_then_the_newest(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        before = tune.get_checkpoint()
        tune.report({"before": before is None}, checkpoint=checkpoint_of("one"))
        checkpoint = tune.get_checkpoint()
        assert checkpoint is not None
        with checkpoint.as_directory() as directory:
            text = Path(directory, "state.txt").read_text()
        tune.report({"before": before is None, "text": text})

    metrics = fit(train)[0].metrics
    assert (metrics["before"], metrics["text"]) == (True, "one")


# -- context ----------------------------------------------------------------------------------


def test_the_context_tells_who_and_where_the_trial_is(fit: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        context = tune.get_context()
        tune.report(
            {
                "id": context.get_trial_id(),
                "name": context.get_trial_name(),
                "dir": context.get_trial_dir(),
                "cpus": context.get_trial_resources().required_resources,
                "experiment": context.get_experiment_name(),
                "storage": context.get_storage(),
                "attempt": context.get_attempt(),
                "world": [context.get_world_size(), context.get_world_rank()],
                "origin": context.get_original_working_dir(),
            }
        )

    result = fit(train, name="facts")[0]
    metrics = result.metrics
    assert metrics["id"] == metrics["trial_id"]
    assert metrics["name"] == f"train_{metrics['id']}"
    assert metrics["dir"] == result.path
    assert metrics["cpus"] == {"CPU": 1}
    assert metrics["experiment"] == "facts"
    assert metrics["storage"] == str(tmp_path / "results" / "facts")
    assert (metrics["attempt"], metrics["world"]) == (1, [1, 0])
    assert metrics["origin"] == os.getcwd()


def test_metrics_larger_than_a_message_are_an_error_that_says_so(fit: Any) -> None:
    def huge(config: dict[str, Any]) -> None:
        tune.report({"ok": 1})
        tune.report({f"part {at}": "x" * (1 << 23) for at in range(9)})

    (result,) = fit(huge)
    assert result.metrics["training_iteration"] == 1
    assert "the metrics are too large" in str(result.error)
    assert "the other end takes 67,108,864" in str(result.error)
