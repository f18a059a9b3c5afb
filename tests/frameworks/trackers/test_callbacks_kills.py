"""Real trackers as callbacks: their data after a rank, or the script, was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript
from tests.rig.trackers import tracked
from tests.rig.trackers.mlflow_server import MlflowServer

pytestmark = [pytest.mark.process, pytest.mark.server]
SCRIPT = Path(__file__).parents[2] / "fit" / "outputs" / "tracked_script.py"
MODULE = "holdfast.air.integrations"
# By run: (iteration, attempt) of each row that arrived, in the order of the tracker's steps.
Shown = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A tracker under test: its callback in a script, and the reader of its data."""

    callback: list[Any]
    shown: Callable[[], Shown]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, SCRIPT) as made:
        made.options = {"lrs": [0.5], "epochs": 4}
        made.environ |= {"HOLDFAST_TENSORBOARD": "0", "HOLDFAST_TRACKER_DEADLINE_S": "60"}
        yield made


@pytest.fixture
def wandb(bench: Bench) -> Subject:
    callback = [f"{MODULE}.wandb", "WandbLoggerCallback", {"project": "p", "mode": "offline"}]
    return Subject(callback=callback, shown=lambda: _paired(tracked.wandb_offline(bench.root)))


@pytest.fixture
def comet(bench: Bench) -> Subject:
    callback = [f"{MODULE}.comet", "CometLoggerCallback", {"online": False}]
    return Subject(callback=callback, shown=lambda: _paired(tracked.comet_offline(bench.root)))


@pytest.fixture
def mlflow(mlflow_server: MlflowServer, request: pytest.FixtureRequest) -> Subject:
    name = request.node.name
    given = {"tracking_uri": mlflow_server.uri, "experiment_name": name}
    return Subject(
        callback=[f"{MODULE}.mlflow", "MLflowLoggerCallback", given],
        shown=lambda: _in_mlflow(mlflow_server.uri, name),
    )


@pytest.fixture(params=[pytest.param("wandb", marks=pytest.mark.smoke), "mlflow", "comet"])
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.getfixturevalue(request.param)
    return found


def _paired(runs: list[tracked.Run]) -> Shown:
    found: Shown = {}
    for run_id, logged in runs:
        rows = found.setdefault(run_id, [])
        iterations = [int(one.value) for one in logged if one.name == "training_iteration"]
        attempts = [int(one.value) for one in logged if one.name == "attempt"]
        rows += zip(iterations, attempts, strict=True)
    return found


def _in_mlflow(uri: str, experiment: str) -> Shown:
    from mlflow import MlflowClient

    found: Shown = {}
    for run in tracked.mlflow_runs(uri, experiment):
        history = MlflowClient(uri).get_metric_history(run.info.run_id, "attempt")
        ordered = sorted(history, key=lambda one: (one.timestamp, one.step))
        found[run.info.run_id] = [(one.step, int(one.value)) for one in ordered]
    return found


def _only(shown: Shown) -> list[tuple[int, int]]:
    (rows,) = shown.values()
    return rows


def _no_trouble(script: UserScript, root: Path) -> None:
    assert "not delivered" not in script.stderr
    assert "tried again" not in script.stderr
    assert "COMET ERROR" not in script.stderr
    assert not list(root.glob("undelivered-*"))
    assert script.left() == []


def test_a_rank_that_is_killed_resumes_in_its_run_and_what_it_repeats_is_shown_apart(
    bench: Bench, subject: Subject
) -> None:
    script = bench.start(trackers=[subject.callback], dies=[4]).succeeds()
    _no_trouble(script, bench.root)
    assert _only(subject.shown()) == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2)]


def test_a_script_that_is_killed_resumes_in_the_same_run_and_no_row_is_missing(
    bench: Bench, subject: Subject
) -> None:
    gate = bench.gate("0-4")
    script = bench.start(trackers=[subject.callback])
    script.wait_for("at 0 4")
    script.dies()
    gate.open()
    restored = bench.restore().succeeds()
    _no_trouble(restored, bench.root)
    assert set(_only(subject.shown())) == {(1, 1), (2, 1), (3, 1), (3, 2), (4, 2)}
