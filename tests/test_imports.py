"""The cost of importing holdfast, and the names of its public modules."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

EXPORTS = Path(__file__).parent.parent / "scripts" / "exports"
PUBLIC = [
    "holdfast",
    "holdfast.data",
    "holdfast.tune",
    "holdfast.train",
    "holdfast.tune.search",
    "holdfast.tune.schedulers",
    "holdfast.tune.stopper",
    "holdfast.tune.logger",
]
HEAVY = ["asyncio", "numpy", "pandas", "pyarrow", "rich", "uvloop", "aiobotocore", "anyio"]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_leads_to_an_object(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__
    assert all(getattr(found, name) is not None for name in found.__all__)


def test_the_table_of_public_names_is_what_the_imports_say() -> None:
    checked = [sys.executable, str(EXPORTS), "--check"]
    done = subprocess.run(checked, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    tune = importlib.import_module("holdfast.tune")
    with pytest.raises(AttributeError, match=r"holdfast\.tune.*no attribute 'Tunr'"):
        _ = tune.Tunr


def test_the_modules_of_tune_are_names_of_it() -> None:
    code = "from holdfast import tune; print(tune.schedulers.ASHAScheduler.__name__, "
    code += "tune.search.Repeater.__name__, tune.stopper.NoopStopper.__name__)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ASHAScheduler", "Repeater", "NoopStopper"]


def test_importing_holdfast_imports_nothing_heavy() -> None:
    code = f"import holdfast.tune, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
