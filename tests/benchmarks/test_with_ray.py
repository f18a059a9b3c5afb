"""`scripts/compare-ray` without Ray: its help, its table, and holdfast on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.with_ray.lines import Sample, lines, table

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "benchmarks.with_ray")

# A Python with a Ray that is holdfast.
STAND_IN = """\
#!/bin/sh
[ "$1" = -c ] && {{ echo 0.0; exit; }}
exec {python} -m holdfast.ray "$@"
"""


def taken(*values: tuple[str, str, float]) -> list[tuple[str, Sample]]:
    return [(side, Sample(work=work, unit="s", value=value)) for side, work, value in values]


def test_a_line_has_the_samples_of_both_sides_and_the_ratio_of_their_medians() -> None:
    found = lines(
        taken(("a", "start", 1.0), ("b", "start", 8.0), ("a", "end", 5.0), ("b", "end", 5.0),
              ("a", "start", 2.0), ("b", "start", 8.0))
    )  # fmt: skip
    start, end = (line.as_json("a", "b") for line in found)
    assert start == {
        "work": "start", "unit": "s", "ratio": 1.5 / 8,
        "a": {"median": 1.5, "samples": [1.0, 2.0]}, "b": {"median": 8.0, "samples": [8.0, 8.0]},
    }  # fmt: skip
    assert (end["work"], end["ratio"]) == ("end", 1.0)


def test_a_side_that_failed_says_so_in_the_table() -> None:
    _, _, row = table(lines(taken(("a", "start", 1.0))), "a", "b").splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["start", "1 s", "failed", ""]


@pytest.mark.process
def test_the_help_installs_nothing_and_names_the_works() -> None:
    told = subprocess.run(
        [ROOT / "scripts" / "compare-ray", "--help"], capture_output=True, text=True, check=True
    )
    assert "recovery" in told.stdout
    assert "compare-ray for" not in told.stderr


@pytest.mark.process
def test_a_python_without_ray_is_refused() -> None:
    told = subprocess.run(
        [*COMMAND, "--ray-python", "/bin/false"], capture_output=True, text=True, cwd=ROOT
    )
    assert told.returncode == 1
    assert told.stderr.startswith("/bin/false has no Ray")


@pytest.mark.process
@pytest.mark.nightly
def test_both_sides_run_each_work_and_leave_no_files(tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o700)
    disk, file = tmp_path / "disk", tmp_path / "found.json"
    disk.mkdir()
    told = subprocess.run(
        [*COMMAND, "--quick", "--ray-python", stand_in, "--directory", disk, "--json", file],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    found = json.loads(file.read_text())
    assert len(found["lines"]) == 16
    for line in found["lines"]:
        for side in ("holdfast", "Ray 0.0"):
            assert len(line[side]["samples"]) == 1, line
    assert not list(disk.iterdir())
