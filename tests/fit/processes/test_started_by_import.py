"""A module without `if __name__ == "__main__":` that an import starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.started_by_import import StartedByImport
from tests.rig.script import LONGEST_S

_UNGUARDED = """
from holdfast import tune

def train(config):
    tune.report({"n": 1})

tune.Tuner(
    train, run_config=tune.RunConfig(name="run", storage_path="results", verbose=0)
).fit()
"""


@pytest.fixture
def unguarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "unguarded.py").write_text(_UNGUARDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "unguarded", raising=False)
    return tmp_path


@pytest.mark.process
def test_resume_with_a_trainable_of_an_unguarded_script_says_what_to_change(
    unguarded: Path,
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], text=True, capture_output=True, timeout=LONGEST_S
        )

    assert run("unguarded.py").returncode == 0
    resumed = run("-m", "holdfast", "resume", "results/run", "--trainable", "unguarded:train")
    assert resumed.returncode == 2
    assert (
        f"--trainable unguarded:train: importing unguarded started fit() "
        f"({unguarded}/unguarded.py:9): put it under `if __name__ == '__main__':`\n"
    ) in resumed.stderr


def test_a_module_that_runs_its_own_trainable_at_its_import_is_refused(unguarded: Path) -> None:
    with pytest.raises(StartedByImport, match=r"importing unguarded started fit\(\)"):
        import_module("unguarded")
    assert not (unguarded / "results").exists()


def imports_it(config: dict[str, Any]) -> None:
    import_module("unguarded")


def test_a_trial_that_imports_a_module_which_runs_fails_with_the_reason(
    unguarded: Path, fit: Callable[..., Any]
) -> None:
    (result,) = fit(imports_it)
    assert "importing unguarded started fit()" in str(result.error)
    assert not list(unguarded.rglob("run"))
