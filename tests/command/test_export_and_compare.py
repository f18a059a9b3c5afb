"""`holdfast export`, `compare` and `plot`: tables, curves and pictures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.command.commands import in_terminal, parsed, told


def test_a_table_is_written_as_csv_parquet_and_json(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import csv, parquet

    path = store / "ended"
    (tmp_path / "stdout.csv").write_text(told(capsys, "export", path))
    table = csv.read_csv(tmp_path / "stdout.csv")
    assert table["config/lr"].to_pylist() == pytest.approx([0.1, 0.2, 0.3])
    out = tmp_path / "rows.parquet"
    done = parsed(capsys, "export", path, "--rows", "-o", out)
    assert (done["format"], done["lines"]) == ("parquet", 10)
    assert parquet.read_table(out)["nested/a"].to_pylist()[0] == "[1, 0]"
    assert main(["export", str(path), "-o", str(out)]) == 2
    assert "--force to replace it" in capsys.readouterr().err
    told(capsys, "export", path, "-o", out, "--format", "json", "--force", "--metric", "loss")
    assert [line["loss"] for line in json.loads(out.read_text())] == [0.1, 0.2]
    every = told(capsys, "export", path, "--rows", "--format", "json")
    assert "NaN" not in every
    assert [line["loss"] for line in json.loads(every)].count(None) == 3  # they were NaN
    assert main(["export", str(path), "-o", str(tmp_path / "x.xls")]) == 2
    assert "pass --format" in capsys.readouterr().err
    assert main(["export", str(path), "-o", str(tmp_path / "new" / "x.csv")]) == 2
    assert f"there is no directory {tmp_path}/new" in capsys.readouterr().err
    assert main(["export", str(path), "--optuna", "sqlite:///x.db"]) == 1
    assert "pip install 'optuna>=" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.parquet.*"))


def test_an_export_steers_no_terminal_and_keeps_every_byte_for_a_pipe(
    store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "forged"
    shutil.copytree(store / "ended", path)
    for rows in path.glob("*/result.json"):
        rows.write_text(rows.read_text().replace('"trial_id": "', '"trial_id": "\\u001b[2J'))
    words = ["export", str(path), "--rows"]
    command = [sys.executable, "-m", "holdfast", *words]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"\x1b[2J" in piped
    shown = in_terminal(words, 200)
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown


def test_compare_puts_the_sides_next_to_each_other_and_draws_their_curves(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "compare", f"{store}/ended:0", f"{store}/ended:1", store / "cut")
    lines = out.splitlines()
    assert lines[0].split() == ["ended:0", "ended:1", "cut"]
    facts = {line.split("  ")[0]: line.split() for line in lines[1:]}
    assert facts["best"] == ["best", "0.1", "(best)", "0.2", "0.1", "(best)"]
    assert facts["lr"] == ["lr", "0.1", "0.2", "0.1"]
    assert facts["iteration"] == ["iteration", "5", "5", "5"]
    assert "alike: kind=a" in lines
    assert lines[-3:] == ["  a ended:0", "  b ended:1", "  c cut"]
    assert max(map(len, lines)) <= 80
    assert main(["compare", str(store / "ended"), str(store / "nowhere")]) == 2
    assert "there is no experiment at" in capsys.readouterr().err


def test_more_sides_than_fit_are_shown_in_blocks(store: Path) -> None:
    out = in_terminal(["compare", *(f"{store}/ended:{n}" for n in range(3))], 45)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert [line.split() for line in lines if line.strip()[:1] in ("0", "1", "2")][:2] == [
        ["0", "1"], ["2"],
    ]  # fmt: skip
    assert max(map(len, lines)) <= 45


def test_a_picture_needs_a_known_kind_a_known_ending_and_matplotlib(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(store / "ended")
    assert main(["plot", path, "--kind", "pie"]) == 2
    assert "the kinds are learning_curves, parallel_coordinates" in capsys.readouterr().err
    assert main(["plot", path, "-o", "x.gif"]) == 2
    assert "x.gif does not end with .png, .svg or .pdf" in capsys.readouterr().err
    assert main(["compare", path, "-o", str(tmp_path / "no" / "x.png")]) == 2
    assert f"there is no directory {tmp_path}/no" in capsys.readouterr().err
