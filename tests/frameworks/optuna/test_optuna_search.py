"""Search with the real Optuna: the answers of its samplers, and the same after a restore."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import optuna
import pytest
from optuna import samplers
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from holdfast import tune
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.tune.search import OptunaSearch
from tests.examples.killing import drawn, example_bench, killed_and_gone_on, started
from tests.frameworks.searches import SearchContract
from tests.rig.bench import Bench

SPACE: dict[str, Any] = {
    "x": tune.uniform(-5, 5),
    "tenth": tune.quniform(0, 1, 0.1),
    "n": tune.lograndint(1, 100),
    "kind": tune.choice(["a", "b", "c"]),
}
REALS: dict[str, Any] = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)}
NESTED: dict[str, Any] = {
    "x": tune.uniform(-5, 5),
    "net": tune.choice([{"width": tune.randint(1, 9)}, tune.uniform(0, 1), "none"]),
}
FINITE: dict[str, Any] = {"x": tune.randint(0, 4), "kind": tune.choice(["a", "b"])}


def opened(search: OptunaSearch, space: Any = None) -> OptunaSearch:
    search.set_search_properties("a", "min", {} if space is None else space, seed=5)
    return search


def finish(search: OptunaSearch, number: int, config: Any) -> None:
    """Every seventh fails."""
    worth = config["x"] ** 2 + (config.get("y", 0) - 1) ** 2 + config.get("tenth", 0)
    row = {"a": worth, "b": -config["x"], "training_iteration": 1}
    search.on_trial_complete(f"t{number}", row, error=number % 7 == 3)


def story(search: OptunaSearch, count: int, at_once: int) -> Iterator[tuple[str, int, Any]]:
    """The questions and results in order, with this many trials at once."""
    live: list[tuple[int, Any]] = []
    for number in range(count):
        if len(live) == at_once:
            ended = live.pop(0)
            finish(search, *ended)
            yield ("end", *ended)
        config = search.suggest(f"t{number}")
        if not isinstance(config, dict):
            return
        live.append((number, config))
        yield "ask", number, config


def answers_after_restore(
    search: OptunaSearch, space: Any, *, cut: int, count: int, at_once: int = 1
) -> tuple[list[Any], list[Any]]:
    """From question number `cut` on: those of a search that continued, and of a restored one."""
    restored = opened(pickle.loads(pickle.dumps(search)), space)
    told = list(story(opened(search, space), count, at_once))
    answers = []
    for what, number, config in told:
        if what == "end":
            finish(restored, number, config)
        elif number < cut:
            restored.recall(f"t{number}", config)
        else:
            answers.append(restored.suggest(f"t{number}"))
    return [config for what, number, config in told if what == "ask" and number >= cut], answers


class TestOptuna(SearchContract):
    count: ClassVar[int] = 40
    takes_normal: ClassVar[bool] = False
    takes_one_config: ClassVar[bool] = True
    refuses_normal: ClassVar[str] = r"^far: Optuna has no distribution"

    @classmethod
    def made(cls, **given: Any) -> OptunaSearch:
        return OptunaSearch(**{"seed": 3, **given})


MATCHING = {
    "TPE": (lambda: None, SPACE),
    "TPE, conditional": (lambda: None, NESTED),
    "TPE, multivariate": (lambda: samplers.TPESampler(multivariate=True), SPACE),
    "TPE, constant liar": (lambda: samplers.TPESampler(constant_liar=True), SPACE),
    "random": (samplers.RandomSampler, SPACE),
    "NSGA-II": (lambda: samplers.NSGAIISampler(population_size=6), SPACE),
    "NSGA-III": (lambda: samplers.NSGAIIISampler(population_size=6), SPACE),
    "CMA-ES": (samplers.CmaEsSampler, REALS),
    "quasi-Monte Carlo": (lambda: samplers.QMCSampler(scramble=True), REALS),
    "grid": (lambda: samplers.GridSampler({"x": [0, 1, 2], "kind": ["a", "b"]}), FINITE),
    "brute force": (samplers.BruteForceSampler, FINITE),
    "fixed parameter": (
        lambda: samplers.PartialFixedSampler({"x": 1.0}, samplers.TPESampler()),
        SPACE,
    ),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("name", MATCHING)
def test_after_a_restore_a_sampler_answers_as_if_nothing_had_happened(
    name: str, at_once: int
) -> None:
    make, space = MATCHING[name]
    cut, count = (3, 8) if space is FINITE else (18, 26)
    search = OptunaSearch(sampler=make(), seed=3)
    expected, answers = answers_after_restore(search, space, cut=cut, count=count, at_once=at_once)
    assert answers == expected
    assert len(answers) >= 3


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_the_gaussian_process_answers_as_if_nothing_had_happened() -> None:
    """On its own it starts a fit where its last one ended, which a restored one has not made."""
    search = OptunaSearch(sampler=samplers.GPSampler(n_startup_trials=4), seed=3)
    expected, answers = answers_after_restore(search, REALS, cut=6, count=8)
    assert answers == expected


def test_a_sampler_of_the_users_own_is_asked_once_more_for_what_it_notes() -> None:
    class Counts(samplers.RandomSampler):
        asked = 0

        def before_trial(self, study: Any, trial: Any) -> None:
            self.asked += 1

    search = opened(OptunaSearch(sampler=Counts(), seed=1), REALS)
    configs = [search.suggest(f"t{i}") for i in range(3)]
    sampler = Counts()
    restored = opened(OptunaSearch(sampler=sampler, seed=1), REALS)
    for number, config in enumerate(configs):
        assert isinstance(config, dict)
        restored.recall(f"t{number}", config)
    assert sampler.asked == 3
    assert restored.suggest("t3") == search.suggest("t3")


# -- spaces -------------------------------------------------------------------------------------


def test_each_domain_has_its_distribution() -> None:
    space = {
        "a": tune.uniform(0, 1),
        "b": tune.loguniform(1e-3, 1),
        "c": tune.quniform(0.05, 1, 0.1),
        "d": {"e": tune.randint(0, 9), "f": tune.lograndint(1, 9)},
        "g": tune.qrandint(1, 9, 2),
        "h": tune.choice(["x", None, 2.5, True]),
        "i": tune.choice([1, True]),
        "j": tune.choice([{"k": tune.uniform(0, 1)}, "l"]),
    }
    assert OptunaSearch.convert_search_space(space) == {
        "a": FloatDistribution(0, 1),
        "b": FloatDistribution(1e-3, 1, log=True),
        "c": FloatDistribution(0.1, 1, step=0.1),
        "d/e": IntDistribution(0, 8),
        "d/f": IntDistribution(1, 8, log=True),
        "g": IntDistribution(2, 8, step=2),
        "h": CategoricalDistribution(["x", None, 2.5, True]),
        "i": CategoricalDistribution([0, 1]),
        "j": CategoricalDistribution([0, 1]),
        "j:0/k": FloatDistribution(0, 1),
    }


@pytest.mark.parametrize(
    ("domain", "advice"),
    [
        (tune.randn(), "bounds"),
        (tune.qloguniform(0.1, 1, 0.1), "omit q"),
        (tune.qlograndint(1, 9, 2), "omit q"),
    ],
)
def test_what_optuna_has_no_distribution_for_is_named(domain: Any, advice: str) -> None:
    with pytest.raises(InvalidSearchSpace, match=f"net/x: Optuna has no distribution .*{advice}"):
        opened(OptunaSearch(), {"net": {"x": domain}})


def test_a_dict_of_distributions_is_a_space() -> None:
    space = {"net/width": IntDistribution(1, 9), "lr": FloatDistribution(0, 1)}
    points = [{"net": {"width": 3}}]
    search = opened(OptunaSearch(space, seed=1, points_to_evaluate=points))
    first, second = search.suggest("t0"), search.suggest("t1")
    assert isinstance(first, dict)
    assert first["net"] == {"width": 3}
    assert 0 <= first["lr"] <= 1
    assert isinstance(second, dict)
    assert set(second) == {"net", "lr"}
    with pytest.raises(InvalidSearchSpace, match=r"points_to_evaluate\[0\]: net/depth is not in"):
        opened(OptunaSearch(space, points_to_evaluate=[{"net": {"depth": 3}}]))


def test_a_space_may_mix_distributions_domains_and_fixed_values() -> None:
    space = {
        "lr": FloatDistribution(1e-3, 1, log=True),
        "net": {"width": IntDistribution(2, 8, step=2), "depth": tune.randint(1, 4)},
        "kind": tune.choice([{"a": FloatDistribution(0, 1, step=0.25)}, None]),
        "list": [CategoricalDistribution(["x", "y"]), 3],
        "epochs": 3,
    }
    for search in (OptunaSearch(space, seed=1), OptunaSearch(seed=1)):
        search.set_search_properties("loss", "min", {} if search.own_space else space)
        for trial in range(8):
            config = search.suggest(f"t{trial}")
            assert isinstance(config, dict)
            assert 1e-3 <= config["lr"] <= 1
            assert config["net"]["width"] in (2, 4, 6, 8)
            assert config["net"]["depth"] in (1, 2, 3)
            assert config["kind"] is None or config["kind"]["a"] in (0, 0.25, 0.5, 0.75, 1)
            assert config["list"] in (["x", 3], ["y", 3])
            assert config.get("epochs", 3) == 3
    with pytest.raises(InvalidSearchSpace, match=r"^n: the steps of IntDistribution.* multiple"):
        opened(OptunaSearch({"n": IntDistribution(1, 9, step=2), "lr": tune.uniform(0, 1)}))


def define(trial: Any) -> dict[str, Any]:
    if trial.suggest_categorical("deep", [True, False]):
        trial.suggest_int("net/depth", 2, 9)
    trial.suggest_float("x", -5, 5)
    return {"net": {"kind": "mlp"}, "epochs": 3}


def test_a_function_says_what_there_is_to_choose() -> None:
    search = opened(OptunaSearch(define, seed=1, points_to_evaluate=[{"deep": True}]))
    config = search.suggest("t0")
    assert isinstance(config, dict)
    assert config["deep"]
    assert config["epochs"] == 3
    assert set(config["net"]) == {"kind", "depth"}
    expected, answers = answers_after_restore(OptunaSearch(define, seed=1), {}, cut=15, count=20)
    assert answers == expected


@pytest.mark.filterwarnings("ignore:Fixed parameter")  # of Optuna
@pytest.mark.parametrize(
    ("point", "told"),
    [
        ({"deep": False, "xx": 0.5}, r"xx': 0.5\}: xx is not in the search space, only .*'deep'"),
        ({"x": 7}, r"points_to_evaluate: \{'x': 7\}: x must be from -5.* to 5.*, not 7"),
        ({"deep": True, "net/depth": 1}, "net/depth must be from 2 to 9, not 1"),
        ({"deep": False, "net/depth": 3}, "net/depth is not in the search space"),
    ],
)
def test_a_point_that_the_function_does_not_ask_for_is_refused(
    url: str, point: dict[str, Any], told: str
) -> None:
    points = [{"deep": True, "x": 1, "net/depth": 2}, point]
    search = OptunaSearch(
        define, seed=1, points_to_evaluate=points, storage=url, study_name="mine"
    )
    assert isinstance(opened(search).suggest("t0"), dict)
    with pytest.raises(InvalidSearchSpace, match=told):
        search.suggest("t1")
    states = [one.state for one in optuna.load_study(study_name="mine", storage=url).trials]
    assert states == [TrialState.RUNNING, TrialState.FAIL]


def test_a_function_that_returns_something_else_is_refused() -> None:
    search = opened(OptunaSearch(lambda trial: trial.suggest_float("x", 0, 1)))
    with pytest.raises(InvalidConfig, match="must return a dict of constants or None"):
        search.suggest("t0")


def test_an_error_of_the_function_fails_the_trial_of_the_study(url: str) -> None:
    def broken(trial: Any) -> Any:
        return {"n": 1 / (1 - trial.number)} if trial.suggest_float("x", 0, 1) else None

    search = opened(OptunaSearch(broken, storage=url, study_name="mine", seed=1))
    search.suggest("t0")
    with pytest.raises(ZeroDivisionError):
        search.suggest("t1")
    states = [one.state for one in optuna.load_study(study_name="mine", storage=url).trials]
    assert states == [TrialState.RUNNING, TrialState.FAIL]


def test_a_question_whose_answer_was_lost_fails_and_is_asked_again(url: str) -> None:
    """A SIGKILL before the journal had the answer."""
    search = opened(OptunaSearch(storage=url, study_name="mine", seed=1), REALS)
    lost = search.suggest("t0")
    again = opened(OptunaSearch(storage=url, study_name="mine", seed=1), REALS)
    assert again.suggest("t0") == lost
    states = [one.state for one in optuna.load_study(study_name="mine", storage=url).trials]
    assert states == [TrialState.FAIL, TrialState.RUNNING]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"space": [("suggest_uniform", "x", 0, 1)]}, "space must be a dict of domains"),
        ({"sampler": samplers.TPESampler}, r"not its class: TPESampler\(\)"),
        ({"storage": "mysql://me:secret@host/studies"}, "password in its URL"),
        ({"sampler": "tpe"}, r"must be a sampler of Optuna, such as optuna\.sam"),
        ({"sampler": optuna.pruners.MedianPruner()}, r"must be a sampler of Optuna"),
        ({"sampler": {}}, r"must be a sampler of Optuna"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: Any, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        OptunaSearch(**given)


# -- several metrics, points, a storage ----------------------------------------------------------


def test_several_metrics_have_a_direction_each() -> None:
    search = OptunaSearch(metric=["a", "b"], mode=["min", "max"], seed=2)
    expected, answers = answers_after_restore(search, REALS, cut=15, count=20)
    assert answers == expected


def test_a_study_in_a_storage_shows_every_trial_once_over_restores(url: str) -> None:
    search = OptunaSearch(seed=3, storage=url, study_name="mine")
    search.add_evaluated_point({"x": 1, "y": 2}, 4.5, intermediate_values=[6, 5])
    search.add_evaluated_point({"x": 0, "y": 0}, 9.5, pruned=True)
    restored = pickle.loads(pickle.dumps(search))
    opened(search, REALS)
    configs = [search.suggest(f"t{i}") for i in range(3)]
    search.on_trial_result("t0", {"a": 3.0, "training_iteration": 1})
    search.on_trial_complete("t0", {"a": 2.0, "training_iteration": 2})
    search.on_trial_complete("t1", None, error=True)

    opened(restored, REALS)
    for number, config in enumerate(configs):
        assert isinstance(config, dict)
        restored.recall(f"t{number}", config)
    restored.on_trial_complete("t0", {"a": 2.0, "training_iteration": 2})
    restored.on_trial_complete("t1", None, error=True)
    restored.on_trial_complete("t2", {"a": 1.0, "training_iteration": 2})
    trials = optuna.load_study(study_name="mine", storage=url).trials
    assert [(trial.state, trial.value) for trial in trials] == [
        (TrialState.COMPLETE, 4.5),
        (TrialState.PRUNED, 9.5),
        (TrialState.COMPLETE, 2.0),
        (TrialState.FAIL, None),
        (TrialState.COMPLETE, 1.0),
    ]
    assert [trial.intermediate_values for trial in trials[:3]] == [{1: 6, 2: 5}, {0: 9.5}, {1: 3}]
    with pytest.raises(InvalidConfig, match=r"directions \['minimize'\], not \['maximize'\]"):
        opened(OptunaSearch(mode="max", storage=url, study_name="mine"), REALS)


def restored_of(search: OptunaSearch, configs: dict[str, Any]) -> OptunaSearch:
    """The search as a restore creates it, with its answers so far."""
    restored = opened(pickle.loads(pickle.dumps(search)), REALS)
    for trial_id, config in configs.items():
        restored.recall(trial_id, config)
    return restored


@pytest.mark.parametrize("sampler", [None, samplers.CmaEsSampler()])
def test_what_trials_report_after_a_restore_reaches_the_study(url: str, sampler: Any) -> None:
    """Whether they had reported before, and whether they finish, are pruned or fail."""
    search = OptunaSearch(seed=3, storage=url, study_name="mine", sampler=sampler)
    opened(search, REALS)
    configs = {one: search.suggest(one) for one in ("long", "pruned", "failed")}
    search.on_trial_result("long", {"a": 3.0, "training_iteration": 1})
    restored = restored_of(search, configs)
    restored.on_trial_result("long", {"a": 3.0, "training_iteration": 1})
    for trial_id, steps in {"long": [2, 3], "pruned": [1, 2], "failed": [1]}.items():
        for step in steps:
            restored.on_trial_result(trial_id, {"a": 3.0 / step, "training_iteration": step})
    again = restored_of(restored, configs)
    for step in (1, 2, 3):
        again.on_trial_result("long", {"a": 3.0 / step, "training_iteration": step})
    again.on_trial_complete("long", {"a": 1.0, "training_iteration": 3})
    for step in (1, 2):
        again.on_trial_result("pruned", {"a": 3.0 / step, "training_iteration": step})
    again.on_trial_pruned("pruned")
    again.on_trial_complete("pruned", {"a": 1.5, "training_iteration": 2})
    again.on_trial_complete("failed", None, error=True)
    trials = optuna.load_study(study_name="mine", storage=url).trials
    pruned = TrialState.PRUNED if sampler is None else TrialState.COMPLETE
    assert [(trial.state, trial.value) for trial in trials[:2]] == [
        (TrialState.COMPLETE, 1.0),
        (pruned, 1.5),
    ]
    assert trials[2].state == TrialState.FAIL
    reported = [trial.intermediate_values for trial in trials]
    assert reported == [{1: 3.0, 2: 1.5, 3: 1.0}, {1: 3.0, 2: 1.5}, {1: 3.0}]


def test_a_failed_trial_that_a_restore_resumes_is_added_to_the_study_again(url: str) -> None:
    search = opened(OptunaSearch(seed=3, storage=url, study_name="mine"), REALS)
    configs = {"t": search.suggest("t")}
    rows = [{"a": 3.0 / step, "training_iteration": step} for step in (1, 2)]
    search.on_trial_result("t", rows[0])
    search.on_trial_complete("t", rows[0], error=True)
    for _ in range(2):  # the second restore finds it finished
        search = restored_of(search, configs)
        for row in rows:
            search.on_trial_result("t", row)
        search.on_trial_complete("t", rows[-1])
    failed, whole = optuna.load_study(study_name="mine", storage=url).trials
    assert (failed.state, failed.intermediate_values) == (TrialState.FAIL, {1: 3.0})
    assert (whole.state, whole.value) == (TrialState.COMPLETE, 1.5)
    assert whole.intermediate_values == {1: 3.0, 2: 1.5}
    assert whole.params == failed.params


def told_pruned(search: OptunaSearch) -> OptunaSearch:
    """One trial runs to its end, and a scheduler stops another."""
    opened(search, REALS)
    for number in range(2):
        trial_id = f"t{number}"
        assert isinstance(search.suggest(trial_id), dict)
        row = {"a": 2.0 + number, "b": 1.0, "training_iteration": 1}
        search.on_trial_result(trial_id, row)
        if number == 1:
            search.on_trial_pruned(trial_id)
        search.on_trial_complete(trial_id, row)
    return search


@pytest.mark.parametrize(
    ("given", "state", "values"),
    [
        ({}, TrialState.PRUNED, [3.0]),
        ({"sampler": samplers.RandomSampler()}, TrialState.PRUNED, [3.0]),
        ({"sampler": samplers.CmaEsSampler()}, TrialState.COMPLETE, [3.0]),
        ({"metric": ["a", "b"], "mode": ["min", "max"]}, TrialState.PRUNED, None),
    ],
)
def test_a_trial_that_a_scheduler_stopped_is_pruned_in_a_storage_if_the_sampler_can_use_it(
    url: str, given: dict[str, Any], state: TrialState, values: Any
) -> None:
    told_pruned(OptunaSearch(seed=1, storage=url, study_name="mine", **given))
    study = optuna.load_study(study_name="mine", storage=url)
    whole, pruned = study.trials
    assert whole.state == TrialState.COMPLETE
    assert (pruned.state, pruned.values) == (state, values)
    assert [trial.number for trial in study.best_trials] == [0]


def test_a_restore_says_nothing_of_trials_that_the_study_knows(url: str) -> None:
    said: list[str] = []

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Hears()
    optuna.logging.get_logger("optuna").addHandler(handler)
    try:
        search = OptunaSearch(seed=1, storage=url, study_name="mine")
        restored = pickle.loads(pickle.dumps(search))
        told_pruned(search)
        opened(restored, REALS)
        for trial in optuna.load_study(study_name="mine", storage=url).trials:
            restored.recall(f"t{trial.number}", dict(trial.params))
            restored.on_trial_complete(f"t{trial.number}", {"a": 2.0, "training_iteration": 1})
    finally:
        optuna.logging.get_logger("optuna").removeHandler(handler)
    assert said == []


def test_a_sampler_with_nothing_left_ends_the_search() -> None:
    grid = samplers.GridSampler({"x": [0, 1, 2], "kind": ["a", "b"]})
    search = opened(OptunaSearch(sampler=grid), FINITE)
    seen: list[tuple[Any, ...]] = []
    while isinstance(config := search.suggest(f"t{len(seen)}"), dict):
        search.on_trial_complete(f"t{len(seen)}", {"a": 1, "training_iteration": 1})
        seen.append((config["x"], config["kind"]))
    assert sorted(seen) == sorted((x, kind) for x in range(3) for kind in "ab")


# -- whole runs ---------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with example_bench(tmp_path) as made:
        yield made


@pytest.mark.process
@pytest.mark.smoke
def test_a_search_that_is_killed_chooses_what_it_would_have_chosen(bench: Bench) -> None:
    started(bench, "search/optuna_search", "--samples", "15", name="whole").succeeds()
    killed_and_gone_on(bench, "search/optuna_search", "--samples", "15", at="12 2")
    assert drawn(bench) == drawn(bench, "whole")


@pytest.mark.process
@pytest.mark.parametrize("example", ["limiter", "repeater", "optuna_define_by_run"])
def test_the_examples_continue_after_a_kill(bench: Bench, example: str) -> None:
    script = killed_and_gone_on(bench, f"search/{example}", "--samples", "6", at="4 2")
    assert "6 trials, the best loss is" in script.stdout


# -- configs that a person adds -------------------------------------------------------------------


def asks(trial: Any) -> None:
    trial.suggest_float("x", -5, 5)
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        trial.suggest_int("n", 1, 9)


@pytest.mark.parametrize(
    ("given", "space", "added"),
    [
        ({}, REALS, {"x": 1.0, "y": 2.0}),
        ({"points_to_evaluate": [{"x": 0.0, "y": 0.0}] * 2}, REALS, {"x": 1.0, "y": 2.0}),
        ({"space": REALS}, None, {"x": 1.0, "y": 2.0}),
        ({"space": asks}, None, {"x": 1.0, "kind": "a", "n": 3}),
    ],
    ids=["tuner", "points", "own", "function"],
)
def test_an_added_config_is_a_trial_of_the_study_also_after_a_restore(
    tmp_path: Path, given: dict[str, Any], space: Any, added: dict[str, Any]
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"

    def searching(study: str, told: list[Any]) -> OptunaSearch:
        search = opened(OptunaSearch(seed=3, storage=url, study_name=study, **given), space)
        for number in range(4):
            if number == 1:
                assert search.take_added("t1", added)
                config: Any = added
            elif len(told) < 3:
                config = search.suggest(f"t{number}")
                told.append(config)
            else:
                config = told[max(0, number - 1)]
                search.recall(f"t{number}", config)
            finish(search, number, config)
        return search

    answers: list[Any] = []
    first = searching("first", answers)
    second = searching("second", answers)
    if "points_to_evaluate" in given:
        assert [answer["x"] for answer in answers[:2]] == [0.0, 0.0]
    assert first.suggest("t4") == second.suggest("t4")
    for study in ("first", "second"):
        trials = optuna.load_study(study_name=study, storage=url).trials
        assert trials[1].params == added
        assert trials[1].state is TrialState.COMPLETE
        assert len(trials) == 5


def test_a_sampler_that_learns_from_no_trial_may_be_asked_for_as_many_as_run() -> None:
    assert OptunaSearch().look_ahead == 1 / 8
    kept = pickle.loads(pickle.dumps(OptunaSearch(sampler=samplers.RandomSampler())))
    assert kept.look_ahead == 1
    chosen = OptunaSearch(sampler=samplers.RandomSampler())
    chosen.look_ahead = 0.5
    assert pickle.loads(pickle.dumps(chosen)).look_ahead == 0.5
