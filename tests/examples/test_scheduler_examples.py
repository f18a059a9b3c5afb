"""The examples of schedulers, run as they are."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.isolation import nothing_is_left, own_environment, trainables_by_value

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture(autouse=True)
def _examples_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(EXAMPLES)
    curve = __import__("curve")
    with own_environment(tmp_path / "home"), trainables_by_value(curve), nothing_is_left():
        yield
    del sys.modules["curve"]


@pytest.mark.parametrize(
    ("example", "samples", "told"),
    [
        ("asha", 6, "epochs, of 162 without a scheduler"),
        ("by_name", 3, "with {'lr'"),
        ("median_stopping", 5, "were stopped early"),
        ("pasha", 4, "nobody was trained for more than 3 epochs"),
        ("mo_asha", 4, "waves: loss"),
        ("resources", 3, "threads"),
    ],
)
def test_an_example_runs_to_its_end(
    example: str,
    samples: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--storage", str(tmp_path), "--name", "run", "--samples", str(samples)]
    path = str(EXAMPLES / f"{example}.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    runpy.run_path(path, run_name="__main__")
    output = capfd.readouterr().out
    assert f"{samples} trials, the best loss is" in output
    assert told in output
