"""Whole experiments, from outside: what every test of `fit()` stands on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.rig.isolation import nothing_is_left, own_environment, trainables_by_value

Fit = Callable[..., tune.ResultGrid]
RunScript = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_environment(tmp_path_factory.mktemp("home")):
        yield


@pytest.fixture(scope="module", autouse=True)
def _trainables_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    with trainables_by_value(sys.modules[request.module.__name__]):
        yield


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with nothing_is_left():
        yield


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
    """For an experiment that several tests look at."""
    return fit_into(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Run Python source as a script of its own, in a directory of its own."""

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
