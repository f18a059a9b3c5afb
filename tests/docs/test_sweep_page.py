"""docs/sweep.md: its sweeps are valid, and it names every key, placeholder and variable."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from holdfast.experiment.worker.command import trainable
from holdfast.sweep.reading import read
from holdfast.sweep.settings import KNOWN, sweep_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sweep.md").read_text()
YAML = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
CODE = ROOT / "experiment" / "worker" / "command"


@pytest.mark.parametrize("text", [one for one in YAML if "parameters:" in one])
def test_a_sweep_of_the_page_is_valid(text: str) -> None:
    found = sweep_of(read(text, "sweep.yaml", ".yaml"), ROOT / "examples" / "sweep")
    assert found.notes == ()


def test_the_page_names_every_key() -> None:
    table = PAGE.partition("## The file")[2].partition("### Placeholders")[0]
    wandb = PAGE.partition("## From W&B sweeps")[2]
    assert [key for key in KNOWN if f"`{key}`" not in table + wandb] == []


def test_the_page_names_every_variable_of_a_command() -> None:
    code = inspect.getsource(trainable)
    variables = set(re.findall(r'"(HOLDFAST_\w+)"', code))
    assert len(variables) == 10
    assert [name for name in variables if f"`{name}`" not in PAGE] == []


def test_the_page_names_every_placeholder() -> None:
    code = (CODE / "words.py").read_text()
    macros = re.findall(r'^    "(\w+)": (?:_|lambda)', code, re.M)
    assert len(macros) == 12
    assert [name for name in macros if f"${{{name}}}" not in PAGE] == []
