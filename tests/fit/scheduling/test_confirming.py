"""`TuneConfig(confirm=...)`: the best configs run again, and the best is the one that holds."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.settings import Settings
from holdfast.results.reading import find, load_experiment
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Trial
from holdfast.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from holdfast.tune.search import BasicVariantGenerator, Searcher
from tests.results.reported import Watched
from tests.rig.bench import Bench
from tests.rig.epochs import saved

pytestmark = pytest.mark.process

SEED = 7
SPACE = {"x": tune.grid_search([1, 2, 3, 4]), "seed": SEED}
GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}
# The seeds of fresh runs follow from this one.
GRID = BasicVariantGenerator(random_state=5)


def lucky(config: dict[str, Any]) -> None:
    """The loss is x and a little noise; only with the seed of the script, 2 seems to be best."""
    noise = config["seed"] % 97 / 1000
    is_luck = config["x"] == 2 and config["seed"] == SEED
    tune.report({"loss": 0.5 if is_luck else config["x"] + noise}, checkpoint=saved(1))


def drawn(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"] + random.random()})


def tuner(place: Path, trainable: Any = lucky, **config: Any) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        param_space=SPACE,
        tune_config=tune.TuneConfig(**{**GOAL, "confirm": 3, "search_alg": GRID, **config}),
        run_config=tune.RunConfig(storage_path=str(place), name="run", verbose=1),
    )


def trials_in(place: Path) -> list[Trial]:
    return list(load_experiment(str(place)).machine.trials.values())


def fresh_in(place: Path) -> list[Trial]:
    return [trial for trial in trials_in(place) if trial.spec.confirms]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best trial was lucky, which several tests read."""
    place = tmp_path_factory.mktemp("confirmed")
    tuner(place).fit()
    return place / "run"


def test_the_best_by_luck_is_not_the_best_of_fresh_runs(place: Path) -> None:
    results = tune.load(str(place))
    assert isinstance(results, tune.ResultGrid)
    best = results.best
    assert best.config == {"x": 1, "seed": SEED}
    assert best.checkpoint is not None
    assert results.get_best_result() is best
    assert results.analysis.best_config == best.config
    first, second, third = results.confirmed
    assert [one.trial_id[-1] for one in (first, second, third)] == ["0", "1", "2"]
    assert first.runs == second.runs == third.runs == 3
    assert second.value == 0.5
    assert all(2 <= value < 2.1 for value in second.values)
    assert not any(one.is_tied for one in (first, second, third))
    assert len(results) == 4 + 9


def test_other_metrics_and_scopes_compare_the_trials_of_the_search(place: Path) -> None:
    results = tune.load(str(place))
    assert isinstance(results, tune.ResultGrid)
    assert (results.get_best_result("loss", "min", "all").config or {})["x"] == 2
    assert (results.get_best_result("loss", "max").config or {})["x"] == 4


def test_each_fresh_run_has_its_own_seed_and_names_its_trial(place: Path) -> None:
    fresh = fresh_in(place)
    seeds = {trial.config["seed"] for trial in fresh}
    assert len(seeds) == 3
    assert SEED not in seeds
    assert {trial.spec.confirms[-1] for trial in fresh} == {"0", "1", "2"}
    assert all(trial.checkpoints for trial in fresh)
    results = tune.load(str(place))
    assert isinstance(results, tune.ResultGrid)
    table = results.get_dataframe()
    assert list(table["confirms"].map(bool)) == [False] * 4 + [True] * 9


def test_show_and_best_say_what_the_fresh_runs_have_shown(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(place)]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"best loss=1\.\d+ \S+_00000 .*\(.* to .* in 3 fresh runs, 1\.007 in the", shown
    )
    assert re.search(r"finished, confirms \w+_00001", shown)
    assert main(["best", str(place)]) == 0
    assert "in 3 fresh runs" in capsys.readouterr().err
    assert main(["ls", str(place.parent), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["experiments"]
    assert 1 < listed["best"]["value"] < 1.1


def test_the_json_has_the_mean_and_the_interval(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(place), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["confirm"] == 3
    first = plain["confirmed"][0]
    assert first["trial_id"] == plain["best"]["trial_id"]
    assert first["low"] < first["mean"] < first["high"]
    assert [bool(one["confirms"]) for one in plain["trials"]] == [False] * 4 + [True] * 9
    assert not any(one["is_added"] for one in plain["trials"])


def test_the_page_marks_fresh_runs_and_shows_the_interval(place: Path) -> None:
    page = Watched(lambda kept: find(str(place), Settings.read({}), {}, asks=False, kept=kept))
    page.look()
    facts, trials = page.followed.facts(), page.followed.trials()
    assert "in 3 fresh runs" in facts["confirmation"]
    assert facts["confirmed"][0]["trial_id"] == trials["ids"][0]
    assert list(map(bool, trials["columns"]["confirms"])) == [False] * 4 + [True] * 9
    assert not any(trials["columns"]["is_added"])
    shown = page.followed.trial(trials["ids"][-1])
    assert (shown["confirms"], shown["best_id"]) == (trials["ids"][2], trials["ids"][0])
    page.close()


def test_comparing_takes_the_mean_of_the_fresh_runs(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(place), f"{place}:1", "--json"]) == 0
    whole, second = json.loads(capsys.readouterr().out)["sides"]
    assert 1 < whole["value"] < 1.1
    assert second["value"] == 0.5


def test_a_replay_leaves_the_fresh_runs_out(place: Path) -> None:
    from holdfast.simulate import replay

    again = replay(str(place), scheduler=ASHAScheduler(max_t=3))
    assert len(again.recorded.trials) == len(again.simulated.trials) == 4


def test_after_an_extension_a_replay_has_the_whole_search(tmp_path: Path) -> None:
    from holdfast.simulate import replay

    def wide(config: dict[str, Any]) -> None:
        tune.report({"loss": float(config["x"])})

    def run(samples: int) -> tune.Tuner:
        return tune.Tuner(
            wide,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(**GOAL, confirm=2, num_samples=samples),
            run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
        )

    run(4).fit()
    run(6).fit(resume="auto", extend=True)
    assert (
        len(replay(str(tmp_path / "run"), scheduler=ASHAScheduler(max_t=3)).recorded.trials) == 6
    )


def test_a_fresh_run_alone_is_a_result(place: Path) -> None:
    alone = fresh_in(place)[0]
    assert tune.load(str(place / alone.spec.dirname)).best.config == alone.config


def test_finished_trials_that_run_again_do_not_lengthen_fresh_runs(tmp_path: Path) -> None:
    class Endless(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.loss = config["x"] + random.random()

        def step(self) -> dict[str, float]:
            return {"loss": self.loss}

        def save_checkpoint(self, folder: str) -> dict[str, float]:
            return {"loss": self.loss}

        def load_checkpoint(self, state: dict[str, float]) -> None:
            self.loss = state["loss"]

    tuner(tmp_path, Endless, confirm=2, scheduler=ASHAScheduler(max_t=3, grace_period=3)).fit()
    again = tune.ResumeConfig(finished="restart")
    restored = tune.Tuner.restore(str(tmp_path / "run"), Endless, resume_config=again).fit()
    assert len(restored) == 4 + 6
    assert {(one.metrics or {})["training_iteration"] for one in restored} == {3}


def test_without_a_seed_in_the_config_a_fresh_run_draws_other_numbers(tmp_path: Path) -> None:
    results = tuner(tmp_path, drawn).fit()
    values = [value for one in results.confirmed for value in one.values]
    assert len(set(values)) == 9


def test_configs_between_which_no_difference_is_shown_are_said_to_be_tied(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def alike(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"] / 10_000 + config["seed"] % 97})

    results = tuner(tmp_path, alike).fit()
    assert [one.is_tied for one in results.confirmed] == [False, True, True]
    assert re.search(
        r"not shown better than trials \w+_00001 and \w+_00002\)", capfd.readouterr().err
    )


def test_a_fresh_run_that_fails_does_not_count(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "first"

    def fails_once(config: dict[str, Any]) -> None:
        if config["x"] == 1 and config["seed"] != SEED and not first.exists():
            first.touch()
            raise ValueError("oh no")
        tune.report({"loss": float(config["x"])})

    results = tuner(tmp_path, fails_once).fit()
    assert results.confirmed[0].runs == 2
    assert "in 2 of 3 fresh runs" in capfd.readouterr().err


class Twice(Searcher):
    """Suggests four configs, and counts what it hears of."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def set_search_properties(self, *args: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        number = int(trial_id.rpartition("_")[2])
        return {"x": number + 1} if number < 4 else self.FINISHED

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.heard.append(trial_id)


def test_a_search_does_not_hear_of_fresh_runs(tmp_path: Path) -> None:
    search = Twice()
    made = tune.Tuner(
        lucky,
        param_space={"seed": SEED},
        tune_config=tune.TuneConfig(**GOAL, confirm=2, search_alg=search, num_samples=-1),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    )
    assert len(made.fit()) == 4 + 6
    assert sorted(one[-1] for one in search.heard) == ["0", "1", "2", "3"]


def test_a_finished_run_can_be_confirmed_later(tmp_path: Path) -> None:
    assert len(tuner(tmp_path, confirm=0).fit()) == 4
    assert len(tuner(tmp_path, confirm=2).fit(resume="auto")) == 4 + 6
    results = tuner(tmp_path, confirm=3).fit(resume="auto")
    assert [one.runs for one in results.confirmed] == [3, 3, 3]
    assert len(tuner(tmp_path, confirm=3).fit(resume="auto")) == 4 + 9


def test_a_run_whose_time_is_too_short_for_fresh_runs_says_what_makes_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuner(tmp_path, confirm=0).fit()
    assert "fresh run" not in capfd.readouterr().err
    spent_s = load_experiment(str(tmp_path / "run")).machine.active_s
    again: Any = {"resume": "auto", "extend": True}
    assert len(tuner(tmp_path, confirm=2, budget=spent_s + 1e-6).fit(**again)) == 4
    shown = " ".join(capfd.readouterr().err.split())
    assert "The time was too short for 6 fresh runs: a larger budget and fit(" in shown
    assert len(tuner(tmp_path, confirm=2, budget="1h").fit(**again)) == 4 + 6
    assert "too short" not in capfd.readouterr().err


SCRIPT = """
import sys
from holdfast import tune
from tests.rig.script import mark, wait_at

def train(config):
    if config["seed"] != 7 and config["x"] == 3:
        mark("fresh")
        wait_at("fresh")
    tune.report({"loss": float(config["x"])})

if __name__ == "__main__":
    tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2, 3, 4]), "seed": 7},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", confirm=3, max_concurrent_trials=1,
            search_alg=tune.search.BasicVariantGenerator(random_state=5)),
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="run", verbose=0),
    ).fit(resume="auto")
"""


def test_a_run_that_is_killed_in_a_fresh_run_makes_the_same_ones(bench: Bench) -> None:
    gate = bench.gate("fresh")
    script = bench.run(bench.write(SCRIPT), str(bench.storage))
    script.wait_for("fresh")
    script.dies()
    assert len(fresh_in(bench.root)) == 3
    gate.open()
    bench.run(bench.write(SCRIPT), str(bench.storage)).succeeds()
    bench.run(bench.write(SCRIPT), str(bench.folder / "whole")).succeeds()
    cut, whole = trials_in(bench.root), trials_in(bench.folder / "whole" / "run")
    assert list(map(settings, cut)) == list(map(settings, whole))
    assert len(cut) == 4 + 9


def settings(trial: Trial) -> tuple[Any, ...]:
    """What does not differ between two runs of a script."""
    spec = trial.spec
    return spec.index, spec.confirms.partition("_")[2], spec.config, trial.status, trial.row


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"confirm": 1}, "at least 2"),
        ({"confirm": -2}, "at least 2"),
        ({"confirm": 2.5}, "at least 2"),
        ({"metric": None, "mode": None}, "needs one metric and its mode"),
        (
            {"scheduler": PopulationBasedTraining(hyperparam_mutations={"x": [1, 2]})},
            "the trials of PopulationBasedTraining change theirs",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidConfig, match=why):
        tuner(tmp_path, **given).fit()
    assert not (tmp_path / "run").exists()
