"""The recipe that needs this library runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_recipes import TRAIN, play


@pytest.mark.process
def test_the_recipe_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    play("Move from Optuna", tmp_path)
