"""A table that gets new columns: no row is lost, and the work is proportional to the rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from holdfast.experiment.projector import append_files
from holdfast.experiment.projector.append_files import ProgressTable


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def widening(table: ProgressTable, *, rows: int, metrics: int) -> None:
    """Each row has a metric that no row had before."""
    wide = {f"metric_{number}": number for number in range(metrics)}
    for row in range(rows):
        table.add([{**wide, f"late_{row}": row}])


def test_columns_that_keep_coming_cost_work_in_proportion_to_the_rows(tmp_path: Path) -> None:
    rewritten = {}
    for rows in (100, 200, 400):
        table = ProgressTable(str(tmp_path / f"{rows}.csv"))
        widening(table, rows=rows, metrics=1_000)
        table.finish()
        rewritten[rows] = table.rewritten
        assert len(rows_in(tmp_path / f"{rows}.csv")) == rows
    for rows, cells in rewritten.items():
        assert cells < 400_000 + 3 * rows * (1_000 + rows)


def test_no_row_is_lost_while_rows_are_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_files, "_FREE_CELLS", 0)
    table = ProgressTable(str(tmp_path / "progress.csv"))
    widening(table, rows=30, metrics=3)
    assert len(rows_in(tmp_path / "progress.csv")) < 30
    table.finish()
    found = rows_in(tmp_path / "progress.csv")
    assert [row[f"late_{at}"] for at, row in enumerate(found)] == [str(at) for at in range(30)]
    assert {row["metric_2"] for row in found} == {"2"}


def test_a_roll_back_counts_the_rows_that_are_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_files, "_FREE_CELLS", 0)
    table = ProgressTable(str(tmp_path / "progress.csv"))
    widening(table, rows=30, metrics=3)
    table.keep(28)
    table.add([{"metric_0": "again"}])
    found = rows_in(tmp_path / "progress.csv")
    assert len(found) == 29
    assert (found[27]["late_27"], found[28]["metric_0"]) == ("27", "again")


def test_a_table_of_usual_size_gets_its_columns_at_once(tmp_path: Path) -> None:
    table = ProgressTable(str(tmp_path / "progress.csv"))
    for row in range(20):
        table.add([{"loss": row, f"late_{row}": row}])
        assert rows_in(tmp_path / "progress.csv")[-1][f"late_{row}"] == str(row)
