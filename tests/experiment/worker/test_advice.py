"""Advice for an error of user code, from the error and the folders alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.worker.failures import advice_for


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "d.pt").touch()
    (tmp_path / "trial").mkdir()
    return tmp_path


def advice(place: Path, path: str) -> str:
    """For opening `path` in the trial."""
    try:
        (place / "trial" / path).read_text()
    except OSError as error:
        error.filename = path
        trial = str(place / "trial")
        found = advice_for(error, started_in=str(place), folder=trial, config={})
        return found.rpartition(" ")[2]
    raise AssertionError(path)


@pytest.mark.parametrize("path", ["data/d.pt", "./data/d.pt", "data/../data/d.pt"])
def test_a_relative_path_gets_the_file_where_the_script_was_started(
    place: Path, path: str
) -> None:
    assert advice(place, path) == f"{place}/data/d.pt"


def test_so_does_a_path_that_was_made_absolute_in_the_trial(place: Path) -> None:
    assert advice(place, f"{place}/trial/data/d.pt") == f"{place}/data/d.pt"


def test_a_file_to_be_written_counts_if_its_folder_is_there(place: Path) -> None:
    assert advice(place, "data/out.txt") == f"{place}/data/out.txt"


@pytest.mark.parametrize("path", ["gone.txt", "gone/d.pt", "/gone/data/d.pt"])
def test_a_path_that_is_nowhere_gets_no_advice(place: Path, path: str) -> None:
    assert advice(place, path) == ""


def test_the_folder_of_the_script_counts_if_it_was_started_elsewhere(place: Path) -> None:
    source = compile("open('data/d.pt')", str(place / "train.py"), "exec")
    with pytest.raises(FileNotFoundError) as raised:
        exec(source)
    error = raised.value.with_traceback(raised.value.__traceback__.tb_next)  # type: ignore[union-attr]
    found = advice_for(error, started_in=os.sep, folder=str(place / "trial"), config={})
    assert found.endswith(f" {place}/data/d.pt")


def test_on_a_node_the_advice_names_no_path_of_one_agent(place: Path) -> None:
    try:
        open("data/d.pt")  # noqa: SIM115
    except OSError as error:
        found = advice_for(
            error,
            started_in=str(place),
            folder=str(place / "trial"),
            config={},
            node_dir=str(place.parent),
        )
    assert found.endswith(
        "os.path.join(tune.get_context().get_original_working_dir(), 'data/d.pt')"
    )


def test_a_module_that_a_node_does_not_have_is_to_be_imported_before() -> None:
    error = ModuleNotFoundError("No module named 'helper'", name="helper.deep")
    given: dict[str, Any] = {"started_in": "/here", "folder": "", "config": {}}
    assert advice_for(error, **given) == ""
    assert "import helper at its top" in advice_for(error, **given, node_dir="/tmp/node")
