"""Rows of a trial as points of a curve: what is read, what is kept, and what is thinned."""

from __future__ import annotations

import csv
import io
import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.results.page.entries import Entries, cells, json_value
from holdfast.results.page.facts import space_of
from holdfast.results.page.rows import Point, Recent, Wanted, add_lines, add_table, thinned
from holdfast.results.ranking import varied_names
from holdfast.results.recorded_space import read_domain
from holdfast.trial.events import Reported
from holdfast.trial.search_space.description import describe
from tests.rig.runs.recorded import RecordedExperiment

values = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(-1.0, 1.0))


def points(losses: list[float | None]) -> list[Point]:
    return [Point(at, float(at), float(at), (loss,)) for at, loss in enumerate(losses, 1)]


@given(st.lists(values, max_size=300), st.integers(10, 50))
def test_a_thinned_curve_keeps_its_ends_and_the_extremes_of_each_bucket(
    losses: list[float | None], most: int
) -> None:
    whole = points(losses)
    kept = thinned(whole, most)
    if len(whole) <= most:
        assert kept == whole
        return
    assert len(kept) <= most + 1
    assert (kept[0], kept[-1]) == (whole[0], whole[-1])
    assert [one.iteration for one in kept] == sorted({one.iteration for one in kept})
    numbers = [loss for loss in losses if loss is not None and not math.isnan(loss)]
    shown = [one.values[0] for one in kept]
    for extreme in (min, max):
        assert not numbers or extreme(numbers) in shown


def test_thinning_keeps_the_extremes_of_every_metric() -> None:
    whole = [Point(at, 0.0, 0.0, (float(at % 97), -float(at % 89))) for at in range(5_000)]
    kept = thinned(whole, 100)
    for metric in (0, 1):
        for extreme in (min, max):
            assert extreme(column(kept, metric)) == extreme(column(whole, metric))


def column(some: list[Point], metric: int) -> list[float]:
    return [value for one in some if (value := one.values[metric]) is not None]


def table(rows: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def rows(count: int) -> list[dict[str, object]]:
    return [
        {"loss": 1 / at, "note": 'a "quoted"\r\nline, <script>', "training_iteration": at,
         "time_total_s": 0.5 * at, "timestamp": 1_700_000_000 + at}
        for at in range(1, count + 1)
    ]  # fmt: skip


def test_a_table_is_read_up_to_a_row_that_is_cut_off() -> None:
    text = table(rows(5))
    wanted = Wanted(metrics=["loss", "note", "missing"])
    for end in range(len(text)):
        curve = wanted.begin()
        add_table(curve, io.StringIO(text[:end], newline=""))
        iterations = [one.iteration for one in curve.points]
        assert iterations == list(range(1, len(iterations) + 1))
        assert all(one.values == (1 / one.iteration, None, None) for one in curve.points[:-1])
    assert len(curve.points) in (4, 5)


def test_rows_after_an_iteration() -> None:
    curve = Wanted(metrics=["loss"], after=3).begin()
    add_table(curve, io.StringIO(table(rows(5)), newline=""))
    plain = curve.plain()
    assert (plain["from"], plain["iteration"]) == (4, [4, 5])
    assert plain["metrics"] == {"loss": [0.25, 0.2]}


def test_lines_of_json_that_are_no_rows_are_left_out() -> None:
    good = json.dumps({"training_iteration": 2, "loss": {"a": 5}, "time_total_s": 1}).encode()
    curve = Wanted(metrics=["loss/a", "loss"]).begin()
    add_lines(curve, [b"", b"[]", b"{", b'{"training_iteration": "1"}', b"[" * 90_000, good])
    assert [one.values for one in curve.points] == [(5.0, None)]


def test_a_huge_integer_is_no_number_of_a_curve() -> None:
    line = json.dumps({"training_iteration": 1, "loss": 10**400}).encode()
    curve = Wanted(metrics=["loss"]).begin()
    add_lines(curve, [line])
    assert [one.values for one in curve.points] == [(None,)]


def reported(trial_id: str, iteration: int, metrics: dict[str, float]) -> Reported:
    return Reported(
        trial_id=trial_id,
        attempt=1,
        iteration=iteration,
        metrics=metrics,
        timestamp=0.0,
        time_this_iter_s=0.0,
        time_total_s=0.0,
    )


def test_the_memory_of_recent_rows_is_bounded() -> None:
    recent = Recent()
    for at in range(1, 3_000):
        recent.add(reported("a", at, {"loss": float(at)}))
    assert [len(recent.points("a", ["loss"])), recent.points("a", [])[-1].iteration] == [
        1_024,
        2_999,
    ]
    for trial in range(45):
        for at in range(1, 1_001):
            recent.add(reported(f"t{trial}", at, {}))
    assert not recent.points("a", [])  # the trial that reported longest ago
    assert len(recent.points("t44", [])) == 1_000
    recent.roll_back("t44", 400)
    recent.add(reported("t44", 401, {}))
    assert recent.points("t44", [])[-1].iteration == 401


def test_a_value_is_shown_with_bounded_texts_and_leaves() -> None:
    shown = json_value({"a": "x" * 1_000_000, "b": list(range(100_000)), "c": 1})
    assert len(shown["a"]) == 10_000
    assert len(shown["b"]) < 2_010
    assert shown["b"][-1] == "…"
    assert json_value({1: {2: float("nan")}}) == {"1": {"2": "NaN"}}
    assert json_value(2**60) == str(2**60)
    assert cells({f"n{at}": at for at in range(500)}, 200).keys() == {
        f"n{at}" for at in range(200)
    }


def test_the_varied_parameters_are_those_of_the_results(tmp_path: Path) -> None:
    from holdfast import tune

    space = {"lr": tune.uniform(0, 1), "net": tune.choice([{"width": 1}, {"depth": 2}]), "c": 3}
    for described in (describe(space), []):
        run = RecordedExperiment(tmp_path / str(len(described)), space=described)
        for at in range(3):
            run.begin({"lr": at, "net": {"width": 1} if at else {"depth": 2}, "c": 3})
        entries = Entries(1)
        entries.update(run.machine, list(run.machine.trials), is_live=True)
        trials = run.machine.trials.values()
        assert entries.varied(run.machine.spec.whole_space) == varied_names(
            run.machine.spec, trials
        )
        run.close()


def test_the_space_in_the_records_says_what_a_config_may_be() -> None:
    from holdfast import tune

    space = {
        "lr": tune.loguniform(1e-4, 0.1),
        "layers": tune.qrandint(2, 8, 2),
        "noise": tune.randn(0, 1),
        "kind": tune.grid_search(["a", None, True]),
        "net": tune.choice([{"width": tune.randint(1, 9)}, "none"]),
        "made": tune.sample_from(lambda: 1),
        "fixed": 3,
    }
    shown = {one["name"]: one for one in space_of(describe(space))}
    names = ("kind", "low", "high", "log", "choices")
    assert {name: tuple(one[key] for key in names) for name, one in shown.items()} == {
        "lr": ("loguniform", 1e-4, 0.1, True, []),
        "layers": ("qrandint", 2, 8, False, []),
        "noise": ("randn", None, None, False, []),
        "kind": ("grid_search", None, None, False, ["a", None, True]),
        "net": ("choice", None, None, False, []),
        "made": ("sample_from", None, None, False, []),
    }


@pytest.mark.parametrize(
    "text",
    [
        "uniform(0, __import__('os'))",
        "uniform(2, 1)",
        "open('x')",
        "choice(" * 50_000,
        "uniform(",
        "[\0]",
    ],
)
def test_a_text_that_is_no_domain_is_none(text: str) -> None:
    """Nothing in the records is evaluated."""
    assert read_domain(text) is None


@pytest.mark.parametrize("bad", ["\x00", "\r", 'a"b\x00,'])
def test_what_is_not_a_table_has_no_rows(bad: str) -> None:
    curve = Wanted(metrics=["loss"]).begin()
    with suppress(csv.Error):
        add_table(curve, io.StringIO(bad, newline=""))
    assert curve.points == []
