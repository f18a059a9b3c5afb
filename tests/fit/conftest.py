"""Fixtures for tests of `fit()`: whole experiments, from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.rig.isolation import by_value as by_value
from tests.rig.isolation import in_own_environment as in_own_environment
from tests.rig.isolation import leaves_nothing as leaves_nothing

Fit = Callable[..., tune.ResultGrid]
RunScript = Callable[..., subprocess.CompletedProcess[str]]


def fit_into(storage: Path) -> Fit:
    """`fit(trainable, param_space, tune_config, **run_config)` with results under `storage`."""

    def fit(
        trainable: Any,
        param_space: dict[str, Any] | None = None,
        tune_config: tune.TuneConfig | None = None,
        **run_config: Any,
    ) -> tune.ResultGrid:
        settings = {"storage_path": str(storage), "verbose": 0, **run_config}
        return tune.Tuner(
            trainable,
            param_space=param_space,
            tune_config=tune_config,
            run_config=tune.RunConfig(**settings),
        ).fit()

    return fit


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    return fit_into(tmp_path / "results")


@pytest.fixture(scope="module")
def shared_fit(tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """For an experiment that several tests read."""
    return fit_into(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Run Python source as a script in its own directory."""

    def run(
        source: str, *arguments: str, name: str = "script.py", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(source)
        return subprocess.run(
            [sys.executable, script.name, *arguments],
            cwd=script.parent,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
