"""A person steers a run: what they order holds in the run, after a kill, and after a restore."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.results.reading import load_experiment
from holdfast.scheduler.events import (
    ConfigAdded,
    EndOrdered,
    LimitChanged,
    NoteWritten,
    PauseRequested,
    ResumeRequested,
    SamplesAdded,
    TrialStopOrdered,
)
from holdfast.scheduler.machine import Machine
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status
from holdfast.tune.search import ConcurrencyLimiter, Searcher
from tests.rig.epochs import resumed, saved
from tests.rig.scheduler.ordering import Orders, at_report, of, when_it_waits

pytestmark = pytest.mark.process

BY = "ann (page)"
LAST = 5


def train(config: dict[str, Any]) -> None:
    for epoch in range(resumed() + 1, LAST + 1):
        tune.report({"epoch": epoch, "loss": config["x"] / epoch}, checkpoint=saved(epoch))


class Model(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.epoch = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        self.epoch += 1
        return {"epoch": self.epoch, "done": self.epoch == LAST}

    def save_checkpoint(self, folder: str) -> None:
        Path(folder, "epoch").write_text(str(self.epoch))

    def load_checkpoint(self, folder: str) -> None:
        self.epoch = int(Path(folder, "epoch").read_text())


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Orders:
    return Orders(monkeypatch)


def tuner(
    place: Path, trainable: Any = train, space: dict[str, Any] | None = None, **config: Any
) -> tune.Tuner:
    run = tune.RunConfig(storage_path=str(place), name="run", verbose=1)
    given = {"x": tune.grid_search([1, 2])} if space is None else space
    return tune.Tuner(
        trainable, param_space=given, tune_config=tune.TuneConfig(**config), run_config=run
    )


def machine_in(place: Path) -> Machine:
    return load_experiment(str(place / "run")).machine


def epochs(result: tune.Result) -> list[int]:
    assert result.metrics_dataframe is not None
    return list(result.metrics_dataframe["epoch"])


def configs(results: tune.ResultGrid, name: str) -> list[Any]:
    return [(result.config or {})[name] for result in results]


INTERRUPT = EndOrdered(reason="interrupt", message="stopped by ann (page)")


def pause(index: int, *, now: bool = False) -> Any:
    return of(index, lambda trial_id: PauseRequested(trial_id=trial_id, by=BY, now=now))


def resume(index: int) -> Any:
    return of(index, lambda trial_id: ResumeRequested(trial_id=trial_id, by=BY))


@pytest.mark.parametrize("now", [False, True])
def test_a_paused_trial_waits_also_after_a_restore_until_it_is_resumed(
    tmp_path: Path, orders: Orders, capfd: pytest.CaptureFixture[str], now: bool
) -> None:
    note = of(0, lambda one: NoteWritten(trial_id=one, text="is its data right?", by=BY))
    orders.add(at_report(0, 2), pause(0, now=now), note)
    orders.add(when_it_waits, lambda _: INTERRUPT)
    tuner(tmp_path).fit()
    assert orders.are_done
    shown = capfd.readouterr().err
    assert "1 paused" in shown
    assert re.search(r"trial \w+_00000 is paused at iteration [23]\n", shown) or now
    first, second = machine_in(tmp_path).trials.values()
    assert (first.status, first.shown_status, first.is_held) == (
        Status.PENDING,
        Status.PAUSED,
        True,
    )
    assert second.status is Status.TERMINATED
    assert first.iteration < LAST

    assert main(["show", str(tmp_path / "run")]) == 0
    shown = capfd.readouterr().out
    assert re.search(r"^train_\S+ +paused ", shown, re.M)
    assert "is its data right?" in shown
    assert main(["show", "--json", str(tmp_path / "run")]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert plain["counts"] == {"PAUSED": 1, "TERMINATED": 1}
    assert [trial["status"] for trial in plain["trials"]] == ["PAUSED", "TERMINATED"]
    assert [trial["is_held"] for trial in plain["trials"]] == [True, False]
    assert [trial["note"] for trial in plain["trials"]] == ["is its data right?", ""]

    orders.add(when_it_waits, resume(0))
    results = tuner(tmp_path).fit(resume="auto")
    assert orders.are_done
    assert [epochs(result) for result in results] == [[*range(1, LAST + 1)]] * 2
    (again, _) = machine_in(tmp_path).trials.values()
    assert (again.attempt, again.resumed_from) == (2, first.checkpoints[-1].iteration)
    assert again.note == "is its data right?"


def test_a_class_trainable_pauses_at_its_next_report_and_its_worker_is_reused(
    tmp_path: Path, orders: Orders
) -> None:
    orders.add(at_report(0, 2), pause(0))
    orders.add(at_report(1, 3), resume(0))
    space = {"x": tune.grid_search([1, 2])}
    results = tuner(tmp_path, Model, space, reuse_actors=True, max_concurrent_trials=1).fit()
    assert orders.are_done
    assert [epochs(result) for result in results] == [[*range(1, LAST + 1)]] * 2
    first, second = machine_in(tmp_path).trials.values()
    assert (first.attempt, first.resumed_from, second.attempt) == (2, 3, 1)
    # The worker of the first ran the second meanwhile.
    assert first.reported_at > second.reported_at


def test_a_stopped_trial_counts_and_says_who_stopped_it(
    tmp_path: Path, orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    orders.add(
        at_report(0, 2), of(0, lambda one: TrialStopOrdered(trial_id=one, by="ann (command)"))
    )
    results = tuner(tmp_path, metric="loss", mode="min").fit()
    done = epochs(results[0])
    assert done in ([1, 2], [1, 2, 3])  # it may have reported before the order reached it
    assert epochs(results[1]) == [*range(1, LAST + 1)]
    assert results.num_errors == 0
    capfd.readouterr()
    assert main(["show", "--json", str(tmp_path / "run")]) == 0
    trial = json.loads(capfd.readouterr().out)["trials"][0]
    assert (trial["status"], trial["stop_reason"]) == ("TERMINATED", "user")
    assert trial["why"] == f"ann (command) stopped it at iteration {len(done)}"
    assert main(["show", str(tmp_path / "run")]) == 0
    assert re.search(r"^train_\S+ +user ", capfd.readouterr().out, re.M)
    # A restore leaves it ended.
    results = tuner(tmp_path, metric="loss", mode="min").fit(resume="auto")
    assert epochs(results[0]) == done


def test_what_a_person_changed_stays_when_the_script_still_says_the_old_values(
    tmp_path: Path, orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    space = {"x": tune.uniform(0, 1)}
    script = {"max_concurrent_trials": 1, "num_samples": 2}
    orders.add(
        at_report(0, 1),
        lambda _: LimitChanged(max_concurrent=2, by=BY),
        lambda _: SamplesAdded(count=1, by=BY, total=3),
        lambda _: INTERRUPT,
    )
    tuner(tmp_path, train, space, **script).fit()
    capfd.readouterr()
    results = tuner(tmp_path, train, space, **script).fit(resume="auto")
    shown = capfd.readouterr().err
    assert "max_concurrent_trials stays 2" in shown
    assert "num_samples stays 3" in shown
    assert len(results) == 3
    spec = machine_in(tmp_path).spec
    assert (spec.max_concurrent, spec.num_samples) == (2, 3)

    # A script that says something else than before wins.
    tuner(tmp_path, train, space, max_concurrent_trials=3, num_samples=2).fit(resume="auto")
    spec = machine_in(tmp_path).spec
    assert (spec.max_concurrent, spec.num_samples) == (3, 3)
    with pytest.raises(InvalidConfig, match="num_samples: was 3, now 4"):
        tuner(tmp_path, train, space, max_concurrent_trials=1, num_samples=4).fit(resume="auto")
    more = tuner(tmp_path, train, space, max_concurrent_trials=4, num_samples=4)
    assert len(more.fit(resume="auto", extend=True)) == 4
    spec = machine_in(tmp_path).spec
    assert (spec.max_concurrent, spec.num_samples) == (4, 4)
    assert "said" not in spec.options


class Hearing(Searcher):
    """Records what it hears, also after a restore makes another object of it."""

    heard: ClassVar[list[tuple[str, str, Any]]] = []

    def set_search_properties(self, *given: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        config = {"x": float(trial_id[-1])}
        self.heard.append(("suggest", trial_id[-1], config))
        return config

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.heard.append(("recall", trial_id[-1], config))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.heard.append(("end", trial_id[-1], result and result["epoch"]))


def test_added_configs_run_and_the_search_hears_of_them_also_after_a_restore(
    tmp_path: Path, orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    def make() -> tune.Tuner:
        search = ConcurrencyLimiter(Hearing(), max_concurrent=4)
        space = {"x": tune.uniform(0, 100), "y": 7}
        return tuner(
            tmp_path, train, space, search_alg=search, num_samples=2, max_concurrent_trials=1
        )

    orders.add(
        at_report(0, 1),
        lambda _: ConfigAdded(config={"x": 50}, by=BY),
        lambda _: ConfigAdded(config={"x": 500}, by=BY),
    )
    orders.add(at_report(1, 2), lambda _: INTERRUPT)
    Hearing.heard.clear()
    make().fit()
    assert ("recall", "1", {"x": 50}) in Hearing.heard
    shown = " ".join(capfd.readouterr().err.split())
    assert shown.count("Hearing does not learn from the added trial") == 1
    Hearing.heard.clear()
    results = make().fit(resume="auto")
    machine = machine_in(tmp_path)
    assert [trial.spec.is_added for trial in machine.trials.values()] == [
        False,
        True,
        True,
        False,
    ]
    assert configs(results, "x") == [0.0, 50, 500, 3.0]
    assert set(configs(results, "y")) == {7}
    assert all(epochs(result) == [*range(1, LAST + 1)] for result in results)
    told = [(what, number) for what, number, _ in Hearing.heard]
    assert ("recall", "1") in told
    assert ("end", "1") in told
    assert not {("recall", "2"), ("end", "2")} & set(told)  # it could not have suggested this
    assert ("suggest", "3") in told


@pytest.mark.parametrize("now", [False, True])
def test_a_search_that_waits_for_a_paused_trial_waits_for_the_person(
    tmp_path: Path, orders: Orders, now: bool
) -> None:
    orders.add(at_report(0, 2), pause(0, now=now))
    orders.add(when_it_waits, resume(0))
    search = ConcurrencyLimiter(Hearing(), max_concurrent=1)
    space = {"x": tune.uniform(0, 100)}
    results = tuner(tmp_path, train, space, search_alg=search, num_samples=2).fit()
    assert orders.are_done
    assert [epochs(result) for result in results] == [[*range(1, LAST + 1)]] * 2


def test_a_config_that_is_added_when_the_search_has_ended_runs_after_a_restore(
    tmp_path: Path, orders: Orders
) -> None:
    orders.add(
        at_report(1, LAST - 1), lambda _: ConfigAdded(config={"x": 9}, by=BY), lambda _: INTERRUPT
    )
    tuner(tmp_path, max_concurrent_trials=1).fit()
    results = tuner(tmp_path, max_concurrent_trials=1).fit(resume="auto")
    assert configs(results, "x") == [1, 2, 9]
    assert all(epochs(result) == [*range(1, LAST + 1)] for result in results)
