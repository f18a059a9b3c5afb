"""The contract of every search that uses a library; each library's folder runs it."""

from __future__ import annotations

import json
import math
import pickle
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import tune
from holdfast.scheduler.searchers.searcher import FINISHED
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Parameters
from holdfast.tune.search import LibrarySearch
from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript

Config = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "examples" / "search"
DRIVER = Path(__file__).parents[1] / "examples" / "search_driver.py"
# The first import of a library, on a machine that does other things, too.
LONGEST_S = 300

FLAT = {
    "x": tune.uniform(-5, 5),
    "lr": tune.loguniform(1e-4, 1),
    "n": tune.randint(1, 9),
    "k": tune.lograndint(1, 65),
    "kind": tune.choice(["a", "b", "c"]),
    "net": {"drop": tune.quniform(0, 1, 0.1), "width": tune.qrandint(8, 64, 8)},
    "one": tune.choice(["only"]),
    "fixed": 3,
}
"""Every kind of domain except the normal one; no search chooses the fixed values."""

CONDITIONAL = {
    "x": tune.uniform(0, 1),
    "net": tune.choice(
        [
            {"kind": "conv", "size": tune.randint(1, 5), "pool": tune.choice(["max", "mean"])},
            {"kind": "dense", "inner": tune.choice([{"width": tune.loguniform(1, 64)}, None])},
            tune.uniform(0, 1),
        ]
    ),
}
NORMAL = {"x": tune.uniform(0, 1), "far": tune.randn(3, 2), "step": tune.qrandn(0, 2, 0.5)}


def flat_loss(config: Mapping[str, Any]) -> float:
    """0 at the best configuration, and far from it almost everywhere."""
    return float(
        (config["x"] - 1) ** 2
        + (math.log10(config["lr"]) + 2) ** 2
        + abs(config["n"] - 3)
        + abs(math.log2(config["k"]) - 3)
        + (config["kind"] != "b")
        + config["net"]["drop"]
        + abs(config["net"]["width"] - 32) / 16
    )


def by_x(config: Mapping[str, Any]) -> float:
    return float((config["x"] - 1) ** 2)


def by_chance(count: int, part: float) -> float:
    """The loss that this fraction of random searches with as many trials reaches."""
    parameters = Parameters(FLAT, who="chance")

    def best(seed: int) -> float:
        rng = random.Random(seed)
        drawn = (parameters.complete({}, rng) for _ in range(count))
        return min(flat_loss(parameters.config(one)) for one in drawn)

    return sorted(map(best, range(40)))[round(part * 40)]


def opened(search: LibrarySearch, space: Mapping[str, Any], mode: str = "min") -> LibrarySearch:
    assert search.set_search_properties("loss", mode, space, seed=3)
    return search


def suggested(search: LibrarySearch, trial: object) -> Config:
    config = search.suggest(f"t{trial}")
    assert isinstance(config, dict)
    return config


def ended(search: LibrarySearch, trial: object, loss: float) -> None:
    row = {"loss": loss, "training_iteration": 1}
    search.on_trial_result(f"t{trial}", row)
    search.on_trial_complete(f"t{trial}", row)


def ran(
    search: LibrarySearch, count: int, loss: Callable[[Config], float] = flat_loss
) -> list[Config]:
    """One trial after the other."""
    configs = []
    for trial in range(count):
        configs.append(suggested(search, trial))
        ended(search, trial, loss(configs[-1]))
    return configs


def check_replayed(
    search: LibrarySearch, configs: list[Config], loss: Callable[[Config], float] = flat_loss
) -> None:
    """Once its history is replayed, a search suggests the last of these configs, as `ran` did."""
    for trial, config in enumerate(configs[:-1]):
        search.recall(f"t{trial}", config)
        ended(search, trial, loss(config))
    assert suggested(search, "next") == configs[-1]


def own(search: LibrarySearch) -> LibrarySearch:
    """Opened with the goal of a Tuner that has only fixed values."""
    assert not search.set_search_properties(
        search.metric or "loss",  # type: ignore[arg-type]
        search.mode or "min",  # type: ignore[arg-type]
        {"fixed": 1},
        seed=3,
    )
    return search


def replays(make: Callable[[], LibrarySearch], configs: list[Config], loss: Any) -> None:
    """A search that was stored and is replayed suggests the last of these configs again."""
    check_replayed(own(pickle.loads(pickle.dumps(make()))), configs, loss)


class SearchContract:
    """`made` is the search under test.

    `count` trials, of which at most the first `begun` are drawn at random, are enough to be better
    than all but this `part` of random searches. After these `begun`, at least one of the next
    `depends` suggestions depends on the result before them.
    """

    seeded: ClassVar[str] = "seed"
    count: ClassVar[int] = 30
    begun: ClassVar[int] = 10
    part: ClassVar[float] = 0.25
    depends: ClassVar[int] = 3
    takes_conditions: ClassVar[bool] = True
    takes_normal: ClassVar[bool] = True
    takes_one_config: ClassVar[bool] = False
    refuses_normal: ClassVar[str] = r"^far: .* normal distribution"

    @classmethod
    def made(cls, **given: Any) -> LibrarySearch:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls) -> list[Config]:
        """The configs of a search that gets the loss of each at once."""
        return ran(opened(cls.made(), FLAT), cls.count)

    def test_it_finds_better_configs_than_chance_would(self, run: list[Config]) -> None:
        assert min(map(flat_loss, run)) < by_chance(self.count, self.part)

    def test_it_hears_of_an_added_config_of_its_space_also_after_a_restore(self) -> None:
        config = Parameters(FLAT, who="a person")
        added = config.config(config.complete({}, random.Random(7)))
        odd = {**added, "x": 99.0}

        def searching(answers: list[Config]) -> tuple[LibrarySearch, list[bool]]:
            search = opened(self.made(**{self.seeded: 5}), FLAT)
            heard = []
            for trial, given in enumerate([None, added, odd, None]):
                if given is not None:
                    heard.append(search.take_added(f"t{trial}", given))
                elif len(answers) < 2:
                    answers.append(suggested(search, trial))
                else:
                    search.recall(f"t{trial}", answers[trial > 0])
                ended(search, trial, float(trial))  # of a trial that it does not know: ignored
            return search, heard

        answers: list[Config] = []
        search, heard = searching(answers)
        assert heard == [True, False]
        again, heard_again = searching(answers)
        assert heard_again == heard
        assert suggested(again, "next") == suggested(search, "next")

    def test_the_result_of_an_added_config_reaches_the_library(self) -> None:
        """What it suggests next depends on that result, and on it alone: all else is the same."""
        space = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)}

        def after(loss: float, *, is_restored: bool) -> list[Config]:
            search = opened(self.made(**{self.seeded: 5}), space)
            first = opened(self.made(**{self.seeded: 5}), space)
            for trial, config in enumerate(ran(first, self.begun, by_x)):
                if is_restored:
                    search.recall(f"t{trial}", config)
                else:
                    assert suggested(search, trial) == config
                ended(search, trial, by_x(config))
            assert search.take_added("tadded", {"x": -4.0, "y": 0.0})
            ended(search, "added", loss)
            found = []
            for trial in range(self.begun, self.begun + self.depends):
                found.append(suggested(search, trial))
                ended(search, trial, by_x(found[-1]))
            return found

        good, bad = (after(loss, is_restored=False) for loss in (-1.0, 1_000.0))
        assert good != bad
        assert after(-1.0, is_restored=True) == good

    def test_each_config_is_one_of_the_space(self, run: list[Config]) -> None:
        parameters = Parameters(FLAT, who="the test")
        for config in run:
            found = parameters.assignment(config, "config")
            assert parameters.config(found) == config
            assert "fixed" not in config
            assert json.loads(json.dumps(config)) == config  # values of Python's own

    def test_after_its_history_is_replayed_it_answers_the_same(self, run: list[Config]) -> None:
        check_replayed(opened(pickle.loads(pickle.dumps(self.made())), FLAT), run)

    def test_the_same_seed_gives_the_same_configs_and_another_others(
        self, run: list[Config]
    ) -> None:
        again = ran(opened(self.made(), FLAT), 2)
        others = ran(opened(self.made(**{self.seeded: 9}), FLAT), 2)
        assert again == run[:2]
        assert others != again

    def test_the_greatest_is_found_as_the_least_of_the_opposite_is(
        self, run: list[Config]
    ) -> None:
        count = self.begun + 1
        greatest = ran(opened(self.made(), FLAT, "max"), count, lambda one: -flat_loss(one))
        assert greatest == run[:count]

    def test_several_trials_at_once_are_distinguished(self) -> None:
        search = opened(self.made(), FLAT)
        configs = [suggested(search, trial) for trial in range(4)]
        for trial in (2, 0, 3, 1):
            ended(search, trial, flat_loss(configs[trial]))
        suggested(search, 4)
        assert all(one not in configs[:i] for i, one in enumerate(configs))

    def test_failures_are_no_good_configs_and_the_search_continues(self) -> None:
        """Every trial with a positive x fails, and NaN is no better than an error."""
        search = opened(self.made(), {"x": tune.uniform(-5, 5)})
        found = []
        for trial in range(self.begun + 3):
            x = suggested(search, trial)["x"]
            found.append(x)
            if x <= 0:
                ended(search, trial, (x + 2) ** 2)
            elif trial % 2:
                search.on_trial_complete(f"t{trial}", None, error=True)
            else:
                ended(search, trial, math.nan)
        assert {x > 0 for x in found[: self.begun]} == {True, False}
        assert min(found[self.begun :]) <= 0

    def test_a_search_of_failures_alone_continues(self) -> None:
        search = opened(self.made(), {"x": tune.uniform(-5, 5)})
        for trial in range(self.begun + 2):
            suggested(search, trial)
            search.on_trial_complete(f"t{trial}", None, error=True)

    def test_points_come_first_and_those_with_rewards_are_not_run(self) -> None:
        space = {"x": tune.uniform(0, 1), "kind": tune.choice(["a", "b"])}
        points = [{"x": 0.25, "kind": "b"}, {"x": 0.5, "kind": "a"}]
        first = opened(self.made(points_to_evaluate=points), space)
        assert ran(first, 3, lambda one: one["x"])[:2] == points
        second = opened(self.made(points_to_evaluate=points, evaluated_rewards=[1, 2]), space)
        assert ran(second, 1, lambda one: one["x"])[0] not in points

    def test_what_exists_only_in_a_category_is_searched_there_or_refused_by_name(self) -> None:
        if not self.takes_conditions:
            with pytest.raises(InvalidSearchSpace, match=r"^net:0/size exists only if net is"):
                opened(self.made(), CONDITIONAL)
            return
        search = opened(self.made(), CONDITIONAL)
        parameters = Parameters(CONDITIONAL, who="the test")
        kinds = set()
        for config in ran(search, self.begun + 2, lambda one: one["x"]):
            found = parameters.assignment(config, "config")
            assert parameters.config(found) == config
            kinds.add(found["net"])
        assert len(kinds) > 1

    def test_numbers_without_bounds_are_searched_or_refused_by_name(self) -> None:
        if not self.takes_normal:
            with pytest.raises(InvalidSearchSpace, match=self.refuses_normal):
                opened(self.made(), NORMAL)
            return
        found = ran(opened(self.made(), NORMAL), self.begun + 1, lambda one: abs(one["far"]))
        assert all(math.isfinite(one["far"]) for one in found)
        assert all((one["step"] / 0.5).is_integer() for one in found)

    def test_a_space_of_one_config_is_searched_or_refused(self) -> None:
        if self.takes_one_config:
            assert ran(opened(self.made(), {"x": tune.choice([1])}), 1, by_x) == [{"x": 1}]
            return
        with pytest.raises(InvalidSearchSpace, match=r"^x: nothing to search"):
            opened(self.made(), {"x": tune.choice([1])})

    def test_a_space_that_has_been_tried_out_ends_or_repeats_itself(self) -> None:
        search = opened(self.made(), {"x": tune.choice(["a", "b"])})
        answers: list[Any] = []
        for trial in range(self.begun + 2):
            answer = search.suggest(f"t{trial}")
            if not isinstance(answer, dict):
                assert answer == FINISHED
                break
            ended(search, trial, float(answer["x"] == "a"))
            answers.append(answer["x"])
        assert {*answers} == {"a", "b"}


def killed_and_whole(
    example: str, folder: Path, *, samples: int
) -> tuple[list[Config], list[Config]]:
    """The searches of an example that was killed in its last but one trial and restored, and of
    one that was not."""
    with workbench(folder, DRIVER) as bench:
        bench.environ["HOLDFAST_TEST_IGNORE"] = "1"
        started(bench, example, "whole", samples).succeeds(within_s=LONGEST_S)
        last = f"{samples - 2} 1"
        gate = bench.gate(f"at-{last.replace(' ', '-')}")
        script = started(bench, example, "run", samples)
        script.wait_for(f"at {last}", within_s=LONGEST_S)
        script.dies()
        gate.open()
        after = started(bench, example, "run", samples).succeeds(within_s=LONGEST_S)
        assert "Resuming run" in after.stdout
        assert bench.problems() == []
        return configs_of(bench, "run"), configs_of(bench, "whole")


def started(bench: Bench, example: str, name: str, samples: int) -> UserScript:
    place = ("--storage", str(bench.storage), "--name", name, "--samples", str(samples))
    return bench.run(bench.script, str(EXAMPLES / f"{example}.py"), *place)


def configs_of(bench: Bench, name: str) -> list[Config]:
    return [trial.config for trial in tune.ExperimentAnalysis(bench.storage / name).trials]
