"""A recorded run, replayed: as it was, under another scheduler, with other workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.records.journal import read_events
from holdfast.results.reading import ExperimentNotFound
from holdfast.scheduler.policy import ChangeTrial, CloneTrial, Decision, TrialReported, View
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.simulate import replay, simulate
from holdfast.simulate.replaying import CurvePoint, Nearest, RecordedCurve
from holdfast.simulate.simulation import read_recording
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.events import Reported
from holdfast.tune.schedulers import ASHAScheduler, TrialScheduler
from tests.rig.isolation import nothing_is_left, own_environment
from tests.rig.runs.recorded import RecordedExperiment


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 trials of 9 iterations on 3 workers, under FIFO; each iteration took 1 + lr seconds."""
    path = tmp_path_factory.mktemp("runs") / "fifo"
    simulate(
        lambda config, iteration: {"loss": config["lr"] + 1 / iteration, "name": "a"},
        param_space={"lr": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=12),
        run_config=tune.RunConfig(stop={"training_iteration": 9}),
        seconds_per_iteration=lambda config: 1 + config["lr"],
        workers=3,
        trace=path,
    )
    return path


def rows_of(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The report of each trial in each iteration, by the journal."""
    events = [record.event for record, _ in read_events(path / "journal")]
    return {
        (event.trial_id, event.iteration): {**event.metrics, "time": event.time_this_iter_s}
        for event in events
        if isinstance(event, Reported)
    }


def test_with_the_same_scheduler_and_workers_it_is_as_it_was(run: Path, tmp_path: Path) -> None:
    found = replay(run, trace=tmp_path / "again")
    assert rows_of(tmp_path / "again") == rows_of(run)
    was, would = found.recorded, found.simulated
    assert (would.workers, would.reports) == (was.workers, was.reports) == (3, 12 * 9)
    assert would.duration_s == pytest.approx(was.duration_s, abs=1e-3)
    assert would.busy_s == pytest.approx(was.busy_s, abs=1e-3)
    assert would.best_value == was.incumbents[-1].value
    assert (found.cut_short, found.approximated) == (0, 0)


def test_asha_on_more_workers_is_sooner_done_and_costs_less(run: Path) -> None:
    found = replay(run, scheduler=ASHAScheduler(max_t=9, reduction_factor=3), workers=12)
    was, would = found.recorded, found.simulated
    assert would.duration_s < was.duration_s / 3
    assert would.busy_s < was.busy_s / 2
    assert would.best_value == was.incumbents[-1].value
    assert found.approximated == 0
    lines = str(found).splitlines()
    assert lines[0].split() == ["as", "it", "was", "under", "ASHAScheduler"]
    assert lines[1].split() == ["workers", "3", "12"]
    plain = found.plain()
    assert plain["simulated"]["workers"] == 12
    assert plain["recorded"]["best"] == plain["simulated"]["best"]


def test_where_a_recorded_curve_was_cut_off_the_trial_ends(tmp_path: Path) -> None:
    simulate(
        lambda config, iteration: config["lr"],
        param_space={"lr": tune.grid_search([0.1, 0.2, 0.3, 0.05])},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=ASHAScheduler(max_t=4, reduction_factor=2)
        ),
        workers=1,
        trace=tmp_path / "asha",
    )
    found = replay(tmp_path / "asha")
    assert [len(trial.reports) for trial in found.recorded.trials] == [4, 1, 1, 4]
    assert found.simulated.stop_reasons == {"finished": 4}
    assert found.cut_short == 2
    assert "2 trials reached the end of the recording" in str(found)


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[RecordedExperiment]:
    """One trial was retried and resumed, one failed for good, one is still training."""
    recorded = RecordedExperiment(
        tmp_path / "torn", metric="loss", mode="min", failure=FailureConfig(max_failures=1)
    )
    yield recorded
    recorded.close()


def test_of_each_iteration_the_newest_attempt_counts(torn: RecordedExperiment) -> None:
    first, second = torn.begin({"lr": 1}), torn.begin({"lr": 2})
    torn.report(first, {"loss": 3.0}, checkpoint="committed")
    torn.report(first, {"loss": 2.0})
    torn.fail(first)
    torn.start(first)
    torn.report(first, {"loss": 2.5})
    torn.report(first, {"loss": 1.0})
    torn.finish(first)
    torn.report(second, {"loss": 9.0})
    recording = read_recording(torn.layout.root)
    losses = [[row.metrics["loss"] for row in trial.reports] for trial in recording.trials]
    assert losses == [[3.0, 2.5, 1.0], [9.0]]
    assert [trial.is_whole for trial in recording.trials] == [True, False]
    assert recording.reports == 5
    found = replay(torn.layout.root)
    assert found.cut_short == 1
    assert [trial.iteration for trial in found.simulated.trials] == [3, 1]


def test_a_run_without_a_report_cannot_be_replayed(torn: RecordedExperiment) -> None:
    torn.begin({"lr": 1})
    with pytest.raises(InvalidConfig, match="has reported anything"):
        replay(torn.layout.root)


def test_what_is_not_a_run_is_reported(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ExperimentNotFound, match="there is no experiment at"):
        replay(tmp_path)
    with pytest.raises(InvalidConfig, match="workers must be"):
        replay(run, workers=0)


class Copying(TrialScheduler):
    """At iteration 5 the first trial resumes from the second, or with a config of its own."""

    needs_checkpoints = True

    def __init__(self, *, clones: bool) -> None:
        self._clones = clones

    def decide(self, view: View, event: Any) -> list[Decision]:
        trials = list(view.trials.values())
        if not isinstance(event, TrialReported) or event.trial_id != trials[0].trial_id:
            return []
        if event.row["training_iteration"] != 5 or trials[0].changed_config is not None:
            return []
        config = {"lr": trials[2].config["lr"] + 1e-9}
        if self._clones:
            source = trials[1].trial_id
            return [CloneTrial(trial_id=event.trial_id, source=source, config=config)]
        return [ChangeTrial(trial_id=event.trial_id, config=config)]


@pytest.mark.parametrize("clones", [True, False])
def test_another_config_continues_by_the_increments_of_the_nearest(
    clones: bool, run: Path
) -> None:
    found = replay(run, scheduler=Copying(clones=clones), workers=12, checkpoint_every=1)
    first = found.simulated.trials[0]
    lr = [trial.spec.config["lr"] for trial in found.recorded.trials]
    # Its value at the change, and from there like the third trial: all fall by the same amount.
    began = lr[1] if clones else lr[0]
    assert first.metrics is not None
    assert first.metrics["loss"] == pytest.approx(began + 1 / 9)
    assert first.metrics["name"] == "a"
    assert 4 <= found.approximated <= 6
    assert "are estimates" in str(found)


def test_an_estimate_stays_in_the_range_of_what_was_recorded(tmp_path: Path) -> None:
    """A trial that is good already continues like one that has everything still to learn."""
    simulate(
        lambda config, iteration: {"accuracy": 0.9 - config["late"] / iteration},
        param_space={"late": tune.grid_search([0.5, 0.1])},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
        run_config=tune.RunConfig(stop={"training_iteration": 4}),
        trace=tmp_path / "late",
    )
    late, early = read_recording(tmp_path / "late").trials
    curve = RecordedCurve([late, early])
    had, _ = curve.step(CurvePoint(early.spec.trial_id, 1), {"late": 0.5})
    assert had.metrics == {"accuracy": 0.875}  # 0.8 + 0.25 is more than any trial had


def test_a_run_whose_configs_changed_is_refused(tmp_path: Path) -> None:
    simulate(
        lambda config, iteration: config["lr"],
        param_space={"lr": tune.grid_search([1.0, 2.0, 3.0])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=Copying(clones=False)),
        run_config=tune.RunConfig(stop={"training_iteration": 9}),
        trace=tmp_path / "changing",
    )
    with pytest.raises(InvalidConfig, match="continued with another config after iteration 5"):
        replay(tmp_path / "changing")


class Climbing(Searcher):
    """Ever larger numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.asked += 1
        return {"lr": self.asked / 10}


def test_another_search_gets_the_nearest_curves(run: Path) -> None:
    search = Climbing()
    found = replay(run, search_alg=search, num_samples=5)
    assert search.asked == 5
    assert [trial.config for trial in found.simulated.trials] == [
        {"lr": number / 10} for number in range(1, 6)
    ]
    assert found.approximated == found.simulated.reports == 5 * 9


def test_the_nearest_config_is_by_ranges_and_by_logarithms() -> None:
    known = [
        ({"lr": 1e-5, "net": {"width": 16}, "kind": "a"}, "small"),
        ({"lr": 1e-1, "net": {"width": 512}, "kind": "a"}, "large"),
        ({"lr": 1e-1, "net": {"width": 512}, "kind": "b"}, "other"),
    ]
    nearest = Nearest(known)
    assert nearest.find({"lr": 1e-4, "net": {"width": 20}, "kind": "a"}) == "small"
    assert nearest.find({"lr": 1e-2, "net": {"width": 400}, "kind": "a"}) == "large"
    assert nearest.find({"lr": 1e-2, "net": {"width": 400}, "kind": "b"}) == "other"
    assert nearest.find({"kind": "b"}) == "other"


def train(config: dict[str, Any]) -> None:
    for epoch in range(3):
        tune.report({"loss": config["lr"] / (epoch + 1)})


@pytest.mark.process
def test_a_real_run_replays_with_the_rows_that_it_reported(tmp_path: Path) -> None:
    with own_environment(tmp_path / "home"), nothing_is_left():
        tune.Tuner(
            tune.with_resources(train, {"cpu": 1}),
            param_space={"lr": tune.grid_search([1.0, 2.0, 4.0])},
            tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2),
            run_config=tune.RunConfig(name="real", storage_path=str(tmp_path), verbose=0),
        ).fit()
        found = replay(tmp_path / "real", trace=tmp_path / "again")
    assert found.recorded.workers <= 2
    assert rows_of(tmp_path / "again") == rows_of(tmp_path / "real")
    assert found.simulated.stop_reasons == {"finished": 3}
    assert found.cut_short == 0
