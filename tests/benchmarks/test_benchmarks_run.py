"""The benchmarks run and print their results; speed is not tested here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"


def run(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "HOLDFAST_RAY_PYTHON"}
    return subprocess.run(
        [sys.executable, RUN, *arguments], capture_output=True, text=True, env={**kept, **environ}
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The output of one quick run, and its JSON."""
    folder = tmp_path_factory.mktemp("benchmarks")
    file = folder / "found.json"
    done = run("--quick", "--runs", "2", "--only", "import", "startup", "reports",
               "--json", file, "--directory", folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


pytestmark = pytest.mark.process


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(text: str) -> list[dict[str, str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head = cells(lines[0])
    return [dict(zip(head, cells(line), strict=True)) for line in lines[2:]]


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for benchmark in found["benchmarks"].values() for row in benchmark]


def test_the_table_has_a_line_for_every_row_of_the_json(
    output: tuple[str, dict[str, Any]],
) -> None:
    text, found = output
    assert list(found["benchmarks"]) == ["import", "startup", "reports"]
    assert [line["work"] for line in table(text)] == [row["work"] for row in rows(found)]


def test_every_sample_is_kept_and_the_figures_are_their_medians(
    output: tuple[str, dict[str, Any]],
) -> None:
    for row in rows(output[1]):
        ours, reference = row["ours"], row["reference"]
        for side in (ours, reference):
            assert len(side["samples"]) == 2
            assert min(side["samples"]) > 0
            assert side["median"] == median(side["samples"])
        assert row["ratio"] == ours["median"] / reference["median"]


def test_a_goal_is_held_against_the_ratio_or_the_figure_itself(
    output: tuple[str, dict[str, Any]],
) -> None:
    found = {row["work"]: row for row in rows(output[1])}
    whole = found["whole script with one trial"]
    assert whole["must_reach"] == "≤ 1 s"
    assert whole["met"] == (whole["ours"]["median"] <= 1)
    two = found["reports of two trials together"]
    assert two["must_reach"] == "ratio ≥ 1.5"
    assert two["met"] == (two["ratio"] >= 1.5)


def test_without_a_python_that_has_ray_its_column_says_so(
    output: tuple[str, dict[str, Any]],
) -> None:
    assert {line["Ray"] for line in table(output[0])} == {"not measured"}


def test_an_unknown_benchmark_is_refused_with_those_there_are() -> None:
    refused = run("--only", "imports")
    assert refused.returncode == 2
    assert "startup" in refused.stderr


def test_a_benchmark_that_fails_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise OSError('no such luck')")
    failed = run("--quick", "--only", "startup", "import", PYTHONPATH=str(tmp_path))
    assert failed.returncode == 1
    assert "one_trial.py" in failed.stderr
    assert "no such luck" in failed.stderr
    lines = {line["work"]: line["ours"] for line in table(failed.stdout)}
    assert lines["startup"] == "failed"
    assert lines["import holdfast, CPU"].endswith(" s")
