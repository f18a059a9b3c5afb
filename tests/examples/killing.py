"""An example of a search that is killed in the middle and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.results.reading import load_experiment
from holdfast.trial.trial import Trial
from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def example_bench(folder: Path) -> Iterator[Bench]:
    with workbench(folder, Path(__file__).parent / "search_driver.py") as made:
        yield made


def started(bench: Bench, example: str, *arguments: str, name: str = "run") -> UserScript:
    place = ("--storage", str(bench.storage), "--name", name)
    return bench.run(bench.script, str(EXAMPLES / f"{example}.py"), *arguments, *place)


def killed_and_gone_on(
    bench: Bench, example: str, *arguments: str, at: str, name: str = "run"
) -> UserScript:
    """Kill the script while trial number a, in `at` of "a i", is about to report iteration i.

    Then start it again: it runs to its end with everything that existed.
    """
    gate = bench.gate(f"at-{at.replace(' ', '-')}")
    script = started(bench, example, *arguments, name=name)
    script.wait_for(f"at {at}")
    script.dies()
    before = drawn(bench, name)
    gate.open()
    after = started(bench, example, *arguments, name=name).succeeds()
    assert drawn(bench, name)[: len(before)] == before
    problems = bench.problems(bench.storage / name)
    assert problems == [], problems
    return after


def drawn(bench: Bench, name: str = "run") -> list[dict[str, Any]]:
    """The configs that the search suggested, however a scheduler changed them since."""
    return [dict(trial.spec.config) for trial in trials_of(bench, name)]


def iterations(bench: Bench, name: str = "run") -> list[int]:
    """The last iteration of each trial."""
    return [trial.iteration for trial in trials_of(bench, name)]


def trials_of(bench: Bench, name: str = "run") -> list[Trial]:
    return list(load_experiment(bench.storage / name).machine.trials.values())
