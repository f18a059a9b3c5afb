"""A study in virtual time: the same machine, the same decisions, and random faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import tune
from holdfast.experiment.records.journal import unpack
from holdfast.scheduler.events import Raised
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import (
    ChangeTrial,
    CloneTrial,
    Decision,
    Observation,
    PauseTrial,
    Stalled,
    StopTrial,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    View,
)
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.simulate import CurveFailed, Faults, Simulation, simulate, world
from holdfast.testing.invariants import check
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import STRATEGIES, PlacementGroupFactory
from holdfast.trial.trial import Status
from holdfast.tune.schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
)

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "depth": tune.choice([1, 2, 3])}
BAD_DAYS = Faults(
    failure_rate=0.05,
    crash_rate=0.05,
    straggler_share=0.3,
    workers_per_node=2,
    node_life_s=20.0,
    node_absence_s=5.0,
)
ALWAYS_AGAIN = tune.FailureConfig(max_failures=-1)


def learning(config: dict[str, Any], iteration: int) -> float:
    """Improves with each iteration, the more the smaller lr is."""
    return float(config["lr"]) + 1 / iteration


class Halving(TrialScheduler):
    """At iteration 3 a trial is paused; when all are, the better half continues."""

    needs_checkpoints = True

    def __init__(self) -> None:
        self._judged: set[str] = set()

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, TrialReported) and event.row["training_iteration"] == 3:
            # After a failure, or without a checkpoint, a trial gets here again.
            is_new = event.trial_id not in self._judged
            self._judged.add(event.trial_id)
            return [PauseTrial(trial_id=event.trial_id)] if is_new else ()
        if isinstance(event, Stalled):
            paused = [t for t in view.trials.values() if t.status is Status.PAUSED]
            paused.sort(key=lambda trial: (trial.row or {})["loss"])
            half = (len(paused) + 1) // 2
            goes_on = [UnpauseTrial(trial_id=trial.trial_id) for trial in paused[:half]]
            return [*goes_on, *(StopTrial(trial_id=trial.trial_id) for trial in paused[half:])]
        return ()


class Copying(TrialScheduler):
    """At iteration 4 a trial continues as a copy of the best, with another config."""

    needs_checkpoints = True

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported) or event.row["training_iteration"] != 4:
            return ()
        known = [t for t in view.trials.values() if t.checkpoints and t.row is not None]
        if not known or view.trials[event.trial_id].changed_config is not None:
            return ()
        best = min(known, key=lambda trial: (trial.row or {})["loss"])
        config = {**best.config, "lr": best.config["lr"] / 2}
        if best.trial_id == event.trial_id:
            return [ChangeTrial(trial_id=event.trial_id, config=config)]
        return [CloneTrial(trial_id=event.trial_id, source=best.trial_id, config=config)]


SCHEDULERS: dict[str, Callable[[], TrialScheduler | None]] = {
    "fifo": lambda: None,
    "asha": lambda: ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
    "hyperband": lambda: HyperBandScheduler(max_t=9, reduction_factor=3),
    "pbt": lambda: PopulationBasedTraining(perturbation_interval=3, hyperparam_mutations=SPACE),
    "halving": Halving,
    "copying": Copying,
}


class Folded:
    """A trace that another machine replays, with a check after each record."""

    def __init__(self) -> None:
        self.machine = Machine()

    def __call__(self, record: bytes) -> None:
        event, now, answers = unpack(record)
        self.machine.replay(event, now=now, answers=answers)
        check(self.machine)


def study(scheduler: TrialScheduler | None = None, **given: Any) -> Simulation:
    """20 trials of 9 iterations on 4 workers."""
    run: dict[str, Any] = {"stop": {"training_iteration": 9}, "failure_config": ALWAYS_AGAIN}
    run |= given.pop("run", {})
    tuning: dict[str, Any] = {"metric": "loss", "mode": "min", "num_samples": 20}
    tuning |= {"scheduler": scheduler, **given.pop("tuning", {})}
    settings: dict[str, Any] = {"param_space": SPACE, "workers": 4, **given}
    return simulate(
        settings.pop("curve", learning),
        tune_config=tune.TuneConfig(**tuning),
        run_config=tune.RunConfig(**run),
        **settings,
    )


@pytest.mark.parametrize(
    ("scheduler", "nodes"), [*((one, None) for one in SCHEDULERS), ("asha", 3)]
)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(
    scheduler: str, nodes: int | None
) -> None:
    policy = SCHEDULERS[scheduler]()
    first, again = (study(policy, faults=BAD_DAYS, seed=7, nodes=nodes) for _ in range(2))
    assert first == again
    assert study(policy, faults=BAD_DAYS, seed=8, nodes=nodes).digest != first.digest


def test_another_process_with_other_hashes_gives_the_same_trace() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_study import BAD_DAYS, SCHEDULERS, study\n"
        "print(study(SCHEDULERS['asha'](), faults=BAD_DAYS).digest)"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    found = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == study(SCHEDULERS["asha"](), faults=BAD_DAYS).digest


def test_no_one_makes_room_for_others_once_the_whole_grid_is_there() -> None:
    decided: list[Decision] = []

    def look(record: bytes) -> None:
        decided.extend(one for answer in unpack(record)[2] for one in answer)

    grid = {"lr": tune.grid_search([0.1, 0.2, 0.3, 0.4])}
    study(SCHEDULERS["pbt"](), param_space=grid, tuning={"num_samples": 1}, trace=look)
    assert any(isinstance(one, CloneTrial) for one in decided)
    assert not any(isinstance(one, PauseTrial) for one in decided)


@given(
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    seed=st.integers(0, 10**6),
    workers=st.integers(1, 7),
    reuses=st.booleans(),
    every=st.integers(0, 3),
    start_s=st.sampled_from([0.0, 0.3]),
    stop_s=st.sampled_from([0.0, 0.7]),
    commit_s=st.sampled_from([0.0, 2.5]),
    failure_rate=st.sampled_from([0.0, 0.1]),
    crash_rate=st.sampled_from([0.0, 0.1]),
    node_life_s=st.sampled_from([None, 10.0, 100.0]),
    preempts=st.booleans(),
    nodes=st.sampled_from([None, None, None, 1, 2, 3, 4]),
    notice_s=st.sampled_from([0.0, 1.5]),
    bundles=st.integers(1, 3),
    strategy=st.sampled_from(STRATEGIES),
)
@settings(max_examples=40, deadline=None)
def test_no_trial_is_lost_whatever_happens(
    scheduler: str,
    seed: int,
    workers: int,
    reuses: bool,
    every: int,
    start_s: float,
    stop_s: float,
    commit_s: float,
    failure_rate: float,
    crash_rate: float,
    node_life_s: float | None,
    preempts: bool,
    nodes: int | None,
    notice_s: float,
    bundles: int,
    strategy: str,
) -> None:
    """The machine never contradicts itself or its journal; it may know the `nodes`."""
    folded = Folded()
    where: dict[str, Any] = {"workers": workers}
    if nodes is not None:
        count = min(bundles, nodes) if strategy == "STRICT_SPREAD" else bundles
        request = PlacementGroupFactory([{"CPU": 1}] * count, strategy)
        where = {"nodes": nodes, "node_resources": {"CPU": 3}, "resources": request}
    faults = replace(
        BAD_DAYS,
        failure_rate=failure_rate,
        crash_rate=crash_rate,
        node_life_s=node_life_s,
        preempts=preempts,
        notice_s=notice_s,
    )
    found = study(
        SCHEDULERS[scheduler](),
        tuning={"num_samples": 9, "reuse_actors": reuses},
        **where,
        checkpoint_every=every,
        start_s=start_s,
        stop_s=stop_s,
        commit_s=commit_s,
        faults=faults,
        seed=seed,
        trace=folded,
    )
    assert (found.reason, found.message) == ("done", "")
    assert len(found.trials) == 9
    assert {trial.status for trial in found.trials} == {Status.TERMINATED}
    if scheduler in ("fifo", "copying", "pbt"):  # a copy of one that has ended resumes from there
        assert min(trial.iteration for trial in found.trials) == 9
    told = [(t.trial_id, t.status, t.iteration, t.attempts, t.metrics) for t in found.trials]
    trials = folded.machine.trials.values()
    assert told == [(t.trial_id, t.status, t.iteration, t.attempt, t.row) for t in trials]
    assert nodes or found.busy_s <= found.workers * found.duration_s + 1e-6


def test_two_schedulers_meet_the_same_mishaps() -> None:
    """A trial that is stopped earlier fails in the same iterations as long as it runs."""
    fates = []
    for scheduler in ("fifo", "asha"):
        failed: list[tuple[str, str]] = []

        def note(record: bytes, failed: list[tuple[str, str]] = failed) -> None:
            event = unpack(record).event
            if isinstance(event, Raised):
                failed.append((event.trial_id, event.failure.message))

        faults = Faults(failure_rate=0.1)
        study(SCHEDULERS[scheduler](), faults=faults, checkpoint_every=1, trace=note)
        fates.append(failed)
    assert set(fates[1])
    assert set(fates[1]) < set(fates[0])


def test_time_and_workers_are_counted() -> None:
    found = study(seconds_per_iteration=2.0, start_s=1.0, stop_s=0.5)
    assert found.duration_s == 5 * (1 + 9 * 2 + 0.5)
    assert found.busy_s == found.workers * found.duration_s
    assert (found.idle_s, found.trained_s, found.reports) == (0, 20 * 18, 180)
    assert found.stop_reasons == {"finished": 20}


def test_an_iteration_costs_what_its_config_number_and_resources_say() -> None:
    spent: set[tuple[float, ...]] = set()

    def cost(config: dict[str, Any], iteration: int, resources: dict[str, float]) -> float:
        spent.add((config["depth"], iteration, resources["CPU"]))
        return float(config["depth"] * iteration / resources["CPU"])

    space = {"depth": tune.grid_search([1, 2])}
    found = study(
        curve=lambda config, iteration: iteration,
        param_space=space,
        tuning={"num_samples": 1},
        run={"stop": {"training_iteration": 3}},
        workers=2,
        resources={"CPU": 2},
        seconds_per_iteration=cost,
    )
    assert spent == {(depth, n, 2) for depth in (1, 2) for n in (1, 2, 3)}
    assert found.duration_s == 2 * (1 + 2 + 3) / 2


def test_stragglers_take_longer() -> None:
    slow = study(faults=Faults(straggler_share=1.0, straggler_factor=5.0))
    assert slow.duration_s == 5 * study().duration_s
    some = study(faults=Faults(straggler_share=0.5, straggler_factor=5.0))
    assert study().duration_s < some.duration_s < slow.duration_s


def test_while_a_node_is_away_its_places_are_empty() -> None:
    """The machine counts them as present, and new attempts wait until there is a place."""
    faults = Faults(workers_per_node=2, node_life_s=9.0, node_absence_s=1000.0)
    found = study(faults=faults, checkpoint_every=1)
    assert found.failures["node"] >= 2
    assert found.idle_s > 500
    assert found.stop_reasons == {"finished": 20}
    assert found.repeated == 0
    again = study(faults=faults)
    assert again.repeated > 0


class Counting:
    """A training with a state: it adds its config's step to what it has."""

    def begin(self, config: dict[str, Any]) -> int:
        return 0

    def step(self, state: int, config: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        state += config["step"]
        return state, {"loss": -state, "step": config["step"]}


class CopyAtThree(TrialScheduler):
    """The first trial resumes from the checkpoint of the second, ten times as fast."""

    needs_checkpoints = True

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        first, second = min(view.trials), max(view.trials)
        is_time = isinstance(event, TrialReported) and event.row["training_iteration"] == 3
        if is_time and event.trial_id == first and view.trials[first].attempt == 1:
            return [CloneTrial(trial_id=first, source=second, config={"step": 50})]
        return ()


@pytest.mark.parametrize("reuses", [True, False])
def test_a_clone_resumes_from_the_state_of_the_other(reuses: bool) -> None:
    found = simulate(
        Counting(),
        param_space={"step": tune.grid_search([1, 5])},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=CopyAtThree(), reuse_actors=reuses
        ),
        run_config=tune.RunConfig(stop={"training_iteration": 4}),
        checkpoint_every=1,
        seconds_per_iteration=lambda config: 1.0 if config["step"] == 5 else 1.1,
        workers=2,
    )
    # At 3.3 s the second has reported its third iteration: 15.
    assert [trial.metrics for trial in found.trials] == [
        {"loss": -(15 + 50), "step": 50},
        {"loss": -20, "step": 5},
    ]
    assert found.trials[0].config == {"step": 50}


@pytest.mark.parametrize("saves", [True, False])
def test_a_paused_trial_resumes_from_what_it_has_saved(saves: bool) -> None:
    """A trial that does not save on request resumes from its newest checkpoint."""
    found = study(
        Halving(),
        tuning={"num_samples": 8},
        saves_when_told=saves,
        checkpoint_every=0 if saves else 2,
    )
    assert found.stop_reasons == {"finished": 4, "stopped": 4}
    # The four that continue do the third iteration again where it was not saved.
    assert found.reports == (8 * 3 + 4 * 6 if saves else 8 * 3 + 4 * 7)
    assert found.repeated == (0 if saves else 4)


def test_a_training_ends_where_its_curve_ends() -> None:
    found = study(curve=lambda config, iteration: None if iteration > 5 else iteration)
    assert {trial.iteration for trial in found.trials} == {5}
    assert found.stop_reasons == {"finished": 20}
    assert study(iterations=4).stop_reasons == {"finished": 20}


def test_the_incumbents_are_what_was_best_at_each_time() -> None:
    found = study()
    values = [incumbent.value for incumbent in found.incumbents]
    assert values == sorted(values, reverse=True)
    assert found.best is not None
    assert found.best_value == min(trial.best or 9 for trial in found.trials) == found.best.best
    last = found.incumbents[-1].elapsed_s
    assert found.best_value_at(last) == found.best_value
    assert found.best_value_at(0.5) is None
    assert found.reached_s(values[-1]) == last
    assert found.reached_s(0.0) is None
    assert f"loss = {values[-1]:.6g}" in str(found)


class Telling(Searcher):
    """One config at a time, the next one when the last has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.alive = ""

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self.alive:
            return None
        self.alive = trial_id
        return {"lr": 0.1, "depth": 1}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append(f"{trial_id[-1]} {result['training_iteration']}")

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.told.append(f"{trial_id[-1]} end")
        self.alive = ""


def test_a_search_algorithm_learns_and_is_asked_as_in_a_real_run() -> None:
    search = Telling()
    study(tuning={"num_samples": 2, "search_alg": search}, run={"stop": {"training_iteration": 2}})
    assert search.told == ["0 1", "0 2", "0 end", "1 1", "1 2", "1 end"]


class AsManyAsLive(Searcher):
    """Three at a time; records how many it knew of at each question."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: set[str] = set()
        self.knew: list[int] = []

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if len(self.alive) >= 3:
            return None
        self.knew.append(len(self.alive))
        self.alive.add(trial_id)
        return {"lr": 0.5 ** len(self.knew), "depth": 1}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.alive.remove(trial_id)


def test_a_search_has_heard_of_all_that_an_event_ends_before_it_is_asked_again() -> None:
    """The last of three at the milestone of HyperBand continues, and the two others are
    stopped."""
    search = AsManyAsLive()
    scheduler = HyperBandScheduler(max_t=3, reduction_factor=3)
    study(scheduler, tuning={"num_samples": 5, "search_alg": search})
    assert search.knew[:4] == [0, 1, 2, 1]


class Refusing(Telling):
    def suggest(self, trial_id: str) -> None:
        return None


def test_a_search_that_waits_for_nothing_ends_the_run() -> None:
    found = study(tuning={"search_alg": Refusing()})
    assert (found.reason, found.trials) == ("abort", ())
    assert "it would never be called again" in str(found)


def test_the_time_budget_is_of_virtual_time() -> None:
    found = study(tuning={"num_samples": -1, "time_budget_s": 100})
    assert (found.reason, found.duration_s) == ("budget", 100)
    assert found.stop_reasons["finished"] == 4 * 11


def test_a_stop_function_sees_each_row() -> None:
    found = study(run={"stop": lambda trial_id, row: row["training_iteration"] == 2})
    assert {trial.iteration for trial in found.trials} == {2}


def test_a_curve_that_raises_ends_the_simulation_and_names_the_trial() -> None:
    def broken(config: dict[str, Any], iteration: int) -> float:
        return 1 / (3 - iteration)

    with pytest.raises(CurveFailed, match=r"ZeroDivisionError in iteration 3 of trial .*_00000 "):
        study(curve=broken)


def test_a_training_that_nothing_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MOST_ITERATIONS", 100)
    with pytest.raises(CurveFailed, match="has reached 100 iterations and nothing ends it"):
        study(run={"stop": None})


def test_what_can_mean_nothing_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"iterations": 0}, "iterations must be"),
        ({"checkpoint_every": -1}, "checkpoint_every must be"),
        ({"curve": 7}, "a curve is a function of"),
        ({"seconds_per_iteration": -1.0}, "seconds_per_iteration must be"),
        ({"seconds_per_iteration": lambda: 1.0}, "must take"),
        ({"start_s": -1.0}, "start_s must be"),
        ({"stop_s": float("nan")}, "stop_s must be"),
        ({"commit_s": "1"}, "commit_s must be"),
        ({"resources": lambda config: None}, "need capacity"),
        ({"tuning": {"scheduler": "nosuch"}}, "there is no scheduler 'nosuch'"),
        ({"scheduler": Halving(), "saves_when_told": False}, "checkpoint_every=1"),
        ({"tuning": {"num_samples": -1}}, "without end"),
        ({"nodes": 0}, "nodes must be a whole number of at least 1, not 0"),
        ({"nodes": 2, "capacity": {"CPU": 1}}, "a cluster has node_resources"),
        ({"node_resources": {"CPU": 1}}, "node_resources needs nodes="),
        ({"nodes": 2, "resources": lambda config: None}, "need node_resources="),
    ]
    for wishes, text in refused:
        with pytest.raises(InvalidConfig, match=text):
            study(**wishes)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"failure_rate": 1.5}, "failure_rate"),
        ({"failure_rate": 0.6, "crash_rate": 0.6}, "crash_rate"),
        ({"straggler_factor": 0}, "straggler_factor"),
        ({"node_life_s": 0}, "node_life_s"),
        ({"workers_per_node": 0}, "workers_per_node"),
    ]
    for faults, text in wrong:
        with pytest.raises(InvalidConfig, match=text):
            Faults(**faults)
