"""A run whose search has no seed gets one from the numbers that the script has seeded."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from holdfast import tune
from holdfast.global_numbers import drawn_seed, seeded_numbers
from holdfast.tune.schedulers import PopulationBasedTraining
from holdfast.tune.search import Searcher


def report(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


SPACE = {
    "x": tune.uniform(0, 1),
    "y": tune.sample_from(lambda: random.random()),
    "z": tune.sample_from(lambda spec: spec.config.x + np.random.normal()),
}


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)


class AtRandom(Searcher):
    """Draws from the script's own numbers, as searchers written for Ray do."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.known: dict[str, float] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.known[trial_id] = random.random() + np.random.random()
        return {"x": self.known[trial_id]}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        assert result is not None
        assert result["loss"] == self.known.pop(trial_id)


def configs_of(results: tune.ResultGrid) -> list[dict[str, Any]]:
    return [dict(result.config or {}) for result in results]


@pytest.mark.parametrize("own", [False, True])
def test_a_seeded_script_draws_the_same_each_time_and_a_second_fit_others(
    fit: Any, *, own: bool
) -> None:
    def two_runs(number: int) -> list[list[dict[str, Any]]]:
        seed(number)
        return [configs_of(one()), configs_of(one())]

    def one(samples: int = 3) -> tune.ResultGrid:
        search = AtRandom() if own else None
        tuning = tune.TuneConfig(num_samples=samples, search_alg=search)
        results: tune.ResultGrid = fit(report, {} if own else SPACE, tuning)
        return results

    first = two_runs(7)
    assert two_runs(7) == first
    assert first[0] != first[1]
    assert two_runs(8)[0] != first[0]

    # A restore continues the sequence, whatever the script has drawn, and what the script draws
    # afterwards is the same.
    seed(7)
    begun, state = one(samples=1), (random.random(), np.random.random())
    seed(7)
    path = begun.experiment_path
    restored = tune.Tuner.restore(path, report, num_samples=3, extend=True).fit()
    assert configs_of(restored) == first[0]
    assert (random.random(), np.random.random()) == state


def test_functions_of_a_population_draw_the_same_in_a_seeded_script(fit: Any) -> None:
    def run() -> list[dict[str, Any]]:
        seed(3)
        scheduler = PopulationBasedTraining(
            metric="loss",
            mode="min",
            perturbation_interval=2,
            hyperparam_mutations={"x": lambda: random.random(), "y": np.random.rand},
        )
        return configs_of(fit(report, {}, tune.TuneConfig(scheduler=scheduler, num_samples=3)))

    first = run()
    assert run() == first
    assert len({json.dumps(config) for config in first}) == 3


def test_without_a_seed_of_the_script_runs_differ(run_script: Any) -> None:
    source = """
import sys
import holdfast
import random, numpy as np
exec(sys.argv[1])
print(holdfast.global_numbers.drawn_seed())
"""

    def drawn(before: str) -> str:
        return str(run_script(source, before).stdout.strip())

    assert drawn("random.random(); np.random.rand()") == "None"
    one = {drawn(f"random.seed(1); {more}") for more in ("", "np.random.rand(9)")}
    assert len(one) == 1  # the numbers of NumPy, which nobody has seeded, have no effect
    assert drawn("np.random.seed(1); random.random()") == drawn("np.random.seed(1)")
    assert drawn("np.random.seed(1)") not in one | {drawn("np.random.seed(2)")}


def test_numbers_in_a_block_are_those_of_its_name_and_do_not_count_as_the_scripts(
    run_script: Any,
) -> None:
    source = """
import holdfast
from holdfast.global_numbers import seeded_numbers, drawn_seed
import random, numpy as np
with seeded_numbers("a"):
    first = random.random(), np.random.rand()
with seeded_numbers("a"):
    assert (random.random(), np.random.rand()) == first
with seeded_numbers("b"):
    assert (random.random(), np.random.rand()) != first
print(drawn_seed())
"""
    assert run_script(source).stdout.strip() == "None"
    seed(4)
    expected = random.random(), np.random.random()
    seed(4)
    with seeded_numbers("c"):
        random.random(), np.random.random()
    assert (random.random(), np.random.random()) == expected


def test_one_number_is_taken_from_each_generator() -> None:
    seed(5)
    drawn_seed()
    after = random.getstate(), np.random.random()
    seed(5)
    random.getrandbits(63)
    np.random.randint(0, 2**63 - 1, dtype=np.int64)
    assert (random.getstate(), np.random.random()) == after
