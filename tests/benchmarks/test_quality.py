"""Claims about algorithms: the tests with invented numbers, and the course of small runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.clock import CONTINUE, Run, play
from benchmarks.quality.command import main
from benchmarks.quality.contests import CONTESTS
from benchmarks.quality.ours import Ours, run
from benchmarks.quality.results import OURS, Result, read
from benchmarks.quality.statistics import LEVEL, MARGIN, better, holm, not_worse
from benchmarks.quality.tables import fill_cells
from benchmarks.quality.verdicts import AgainstPeer, against_peers, against_random
from benchmarks.tasks.analytic import BRANIN
from benchmarks.tasks.course import Course, mean_between, value_at
from benchmarks.tasks.mixed import SMALL_NETWORK
from benchmarks.tasks.task import Field, Task, drawn

SEEDS = range(30)
SPREAD = [0.5 + 0.01 * (7 * seed % 30) for seed in SEEDS]


def test_an_algorithm_is_not_worse_than_itself() -> None:
    assert not_worse(SPREAD, SPREAD) < 1e-6
    assert better(SPREAD, SPREAD) == 1.0


def test_one_that_is_worse_by_the_margin_is_not_called_as_good() -> None:
    assert not_worse([score + MARGIN for score in SPREAD], SPREAD) == 1.0
    assert not_worse([score + 2 * MARGIN for score in SPREAD], SPREAD) > 0.99
    assert not_worse([score + MARGIN / 2 for score in SPREAD], SPREAD) < 1e-6


def test_holm_multiplies_the_smallest_most_and_keeps_the_order() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})


def test_the_incumbent_is_what_looks_best_and_counts_for_what_it_is_worth() -> None:
    course = Course()
    course.saw(1.0, 0.5, 0.6)
    course.saw(2.0, 0.7, 0.1)  # looks worse, because the true value is not observed
    course.saw(3.0, 0.4, 0.7)
    assert course.points == [(1.0, 0.6), (3.0, 0.7)]
    assert value_at(course.points, 0.9) is None
    assert value_at(course.points, 2.9) == 0.6
    assert mean_between(course.points, 2.0, 6.0) == pytest.approx((0.6 + 3 * 0.7) / 4)


class RandomSearch:
    """As a peer would be called: every draw is trained to the end."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._seed, self._count = task, seed, 0

    def next(self) -> Run:
        config = drawn(self._task, self._seed, self._count)
        self._count += 1
        return Run(number=self._count, config=config, state=self._task.begun)

    def report(self, run: Run, seen: float) -> str:
        return CONTINUE

    def ended(self, run: Run, seen: float) -> None:
        pass


@pytest.mark.parametrize("seed", [0, 1])
def test_the_peers_clock_and_our_simulator_tell_the_same_of_random_search(seed: int) -> None:
    field = Field(workers=3, trainings=2.5)
    task = replace(BRANIN, seconds=lambda config: 1 + config["x1"])
    assert play(RandomSearch(task, seed), task, seed, field) == run(Ours(), task, seed, field)


def made_up(side: str, algorithm: str, scores: list[float]) -> Result:
    return Result(
        side=side, algorithm=algorithm, task="branin", workers=8, trainings=8, version="1",
        scores=scores, finals=scores, quartiles=[None], took_s=1.0,
    )  # fmt: skip


def compared(ours: list[float], theirs: list[float]) -> AgainstPeer:
    results = [
        made_up(OURS, "random search", [2 * score for score in SPREAD[: len(ours)]]),
        made_up(OURS, "ASHA", ours),
        made_up("ray", "ASHA", theirs),
    ]
    return against_peers(results)[0]


def test_scores_are_in_units_of_random_search() -> None:
    one = compared(SPREAD, SPREAD)
    assert (one.ours, one.theirs) == pytest.approx((0.5, 0.5))
    assert (one.verdict, one.random_passes, one.seeds) == ("not worse", False, 30)


def test_three_seeds_show_nothing() -> None:
    assert compared(SPREAD[:3], SPREAD[:3]).verdict == "not shown"


def test_what_the_paper_claims_and_no_test_shows_stands_out() -> None:
    results = [made_up(OURS, "random search", SPREAD), made_up(OURS, "ASHA", SPREAD)]
    assert [one.verdict for one in against_random(results)] == ["NOT better"]


def test_the_command_runs_what_is_asked_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for peer in ("RAY", "OPTUNA", "SYNE"):
        monkeypatch.delenv(f"HOLDFAST_{peer}_PYTHON", raising=False)
    asha = replace(
        next(one for one in CONTESTS if one.name == "ASHA"),
        tasks=["branin"],
        field=Field(workers=2, trainings=1.5),
    )
    monkeypatch.setattr("benchmarks.quality.command.CONTESTS", [asha])
    file = tmp_path / "found.json"
    main(["--seeds", "2", "--results", str(file), "--only", "ASHA"])
    assert {(found.side, found.algorithm, found.task) for found in read(file)} == {
        (OURS, "random search", "branin"), (OURS, "ASHA", "branin"),
    }  # fmt: skip
    told = capsys.readouterr()
    assert "HOLDFAST_RAY_PYTHON is not set" in told.err
    before = json.loads(file.read_text())
    main(["--seeds", "2", "--results", str(file), "--keep"])
    assert json.loads(file.read_text()) == before


def test_no_result_in_the_docs_is_of_fewer_than_15_seeds() -> None:
    kept = read()
    assert kept
    assert all(15 <= len(found.scores) <= len(SEEDS) for found in kept)
    assert LEVEL == 0.05


def test_a_run_of_two_goals_is_reported_by_the_front_of_all_that_it_has_seen() -> None:
    field = Field(workers=3, trainings=1)
    points = run(Ours(), SMALL_NETWORK, 0, field)
    assert points == play(RandomSearch(SMALL_NETWORK, 0), SMALL_NETWORK, 0, field)
    values = [value for _, value in points]
    assert values == sorted(values, reverse=True)
    assert values[-1] > SMALL_NETWORK.best


def test_fewer_seeds_are_held_against_the_same_seeds_of_others() -> None:
    results = [
        made_up(OURS, "random search", [2 * score for score in SPREAD]),
        made_up(OURS, "ASHA", SPREAD[:20]),
        made_up("ray", "ASHA", SPREAD),
    ]
    assert against_peers(results)[0].seeds == 20
    assert [one.verdict for one in against_random(results)] == ["better"]


def test_what_an_algorithm_came_to_stands_in_the_last_cell_of_its_row(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| class | | quality |\n| `ASHAScheduler`, `A` | x | |\n| `FIFO` | | none |\n")
    halves = [0.5 * score for score in SPREAD]
    fill_cells(page, [made_up(OURS, "random search", SPREAD), made_up(OURS, "ASHA", halves)])
    told = "0.50; better than random search on 1 of 1 tasks, 30 seeds"
    assert page.read_text().splitlines()[1:] == [
        f"| `ASHAScheduler`, `A` | x | {told} |", "| `FIFO` | | none |",
    ]  # fmt: skip
