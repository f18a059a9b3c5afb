"""What `search_alg="auto"` and `scheduler="auto"` choose, and where the user reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.start.short_names import with_algorithms
from holdfast.simulate import simulate
from holdfast.tune.search import AutoSearch, TuneBOHB
from tests.frameworks.searches import ended, opened, suggested

PLANE = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1), "fixed": 3}
NOBODY_SAYS = "because neither num_samples nor a budget is given"


def chosen(space: dict[str, Any], **given: Any) -> tuple[tune.TuneConfig, str]:
    return with_algorithms(
        tune.TuneConfig(**{"metric": "loss", "mode": "min", "search_alg": "auto", **given}), space
    )


@pytest.mark.parametrize(
    ("given", "trials"),
    [
        ({}, 30),
        ({"num_samples": 1}, 1),
        ({"num_samples": 7}, 7),
        ({"time_budget_s": 60}, -1),
        ({"time_budget_s": 60, "num_samples": 7}, 7),
        ({"search_alg": AutoSearch(seed=1)}, 30),
        ({"search_alg": tune.search.ConcurrencyLimiter(AutoSearch(), 2)}, 30),
        ({"search_alg": "random"}, 1),
        ({"search_alg": None}, 1),
    ],
)
def test_the_number_of_trials_is_chosen_where_nobody_says(
    given: dict[str, Any], trials: int
) -> None:
    tuning, _ = chosen(PLANE, **given)
    assert tuning.num_samples == trials


@pytest.mark.parametrize(
    ("space", "given", "trials"),
    [
        (PLANE, {}, -1),
        (PLANE, {"search_alg": TuneBOHB()}, -1),
        ({"lr": 0.1}, {}, 1),
        ({"lr": 0.1}, {"search_alg": "auto"}, 1),
        ({"lr": tune.grid_search([1, 2])}, {}, 1),
        (PLANE, {"num_samples": 7}, 7),
        (PLANE, {"budget": None, "time_budget_s": 3600}, 1),
    ],
)
def test_a_budget_says_how_many_trials_there_are(
    space: dict[str, Any], given: dict[str, Any], trials: int
) -> None:
    tuning, _ = chosen(space, **{"search_alg": None, "budget": "1h", **given})
    assert tuning.num_samples == trials


def test_more_parameters_get_more_trials_within_limits() -> None:
    counts = [
        chosen({f"x{i}": tune.uniform(0, 1) for i in range(n)})[0].num_samples for n in (1, 7, 90)
    ]
    assert counts == [30, 70, 200]


def test_the_line_says_what_was_chosen_and_why() -> None:
    _, told = chosen(PLANE, scheduler="auto")
    assert told == (
        "auto: a Gaussian process learns from the trials and searches 2 parameters; there are 30 "
        f"trials, {NOBODY_SAYS}; at its reports 3, 9, 27 and so on, about one trial in three "
        "continues"
    )
    assert chosen(PLANE, budget="1h")[1].endswith(
        "there are as many trials as the time allows; a slow config must promise more"
    )
    assert chosen(PLANE, num_samples=5, search_alg="random")[1] == ""
    assert chosen(PLANE, search_alg=TuneBOHB())[1] == ""


@pytest.mark.parametrize(
    ("space", "why", "trials"),
    [
        ({"lr": 0.1}, "param_space has nothing that AutoSearch could search", 1),
        (
            {"x": tune.uniform(0, 1), "y": tune.sample_from(lambda spec: spec.config.x)},
            "y: AutoSearch cannot search a sample_from",
            30,
        ),
    ],
)
def test_a_space_that_no_model_can_search_is_searched_at_random(
    space: dict[str, Any], why: str, trials: int
) -> None:
    tuning, told = chosen(space)
    assert tuning.search_alg is None
    assert tuning.num_samples == trials
    assert told.startswith(f"auto: random and grid search, because {why}")


def test_without_a_space_the_name_becomes_the_search_and_nothing_is_chosen() -> None:
    """A restore may be given the algorithms and not the space."""
    given = tune.TuneConfig(metric="loss", mode="min", search_alg="auto")
    tuning, told = with_algorithms(given, None)
    assert isinstance(tuning.search_alg, AutoSearch)
    assert (tuning.num_samples, told) == (1, "")


def test_the_same_space_is_refused_by_a_search_that_the_user_has_made() -> None:
    with pytest.raises(tune.TuneError, match="cannot search a sample_from"):
        chosen({"y": tune.sample_from(lambda spec: 1)}, search_alg=AutoSearch())


def test_what_the_search_expects_is_in_the_units_of_the_metric() -> None:
    search = opened(AutoSearch(mode="max"), {"x": tune.uniform(0, 1)})
    for trial in range(30):
        config = suggested(search, trial)
        ended(search, trial, 500 - 100 * (config["x"] - 0.3) ** 2)
    expected = search.outlook
    assert expected is not None
    assert expected.best == pytest.approx(500, abs=0.1)
    assert 0 <= expected.gain < 1


def test_a_simulation_knows_the_names_too() -> None:
    found = simulate(
        lambda config, iteration: {"loss": config["x"] / iteration},
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", search_alg="auto", scheduler="auto"
        ),
        iterations=9,
    )
    assert len(found.trials) == 30


@pytest.mark.parametrize(("scheduler", "first"), [("asha", 3), (tune.create_scheduler("asha"), 1)])
def test_the_name_asha_judges_later_than_rays_defaults(scheduler: Any, first: int) -> None:
    found = simulate(
        lambda config, iteration: {"loss": config["x"] / iteration},
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=40, scheduler=scheduler
        ),
        iterations=9,
    )
    assert min(trial.iteration for trial in found.trials) == first


def descends(config: dict[str, Any]) -> None:
    for step in range(4):
        tune.report({"loss": config["x"] / (step + 1)})


@pytest.mark.process
def test_the_choice_is_in_the_output_in_show_and_in_its_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tune.Tuner(
        descends,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", search_alg="auto", num_samples=12),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path)),
    ).fit()
    told = "auto: a Gaussian process learns from the trials and searches 1 parameter"
    assert told in capfd.readouterr().err
    assert main(["show", str(tmp_path / "run")]) == 0
    assert f"  {told}\n" in capfd.readouterr().out
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["choice"] == told
