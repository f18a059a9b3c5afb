"""Fixtures for tests of `fit()`: whole experiments, from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from tests.rig.isolation import by_value as by_value
from tests.rig.isolation import in_own_environment as in_own_environment
from tests.rig.isolation import leaves_nothing as leaves_nothing
from tests.rig.script import LONGEST_S

Fit = Callable[..., tune.ResultGrid]
Trainer = Callable[..., train.DataParallelTrainer]
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
def trainer(tmp_path: Path) -> Trainer:
    """A trainer of two ranks, with results under tmp_path / "results"."""

    def make(
        loop: Callable[..., None],
        *,
        workers: int | tuple[int, int] = 2,
        max_failures: int = 0,
        lost_worker_absence_s: float = 30.0,
        run: dict[str, Any] | None = None,
        **more: Any,
    ) -> train.DataParallelTrainer:
        settings: dict[str, Any] = {
            "name": "run",
            "storage_path": str(tmp_path / "results"),
            "verbose": 0,
            "failure_config": train.FailureConfig(
                max_failures=max_failures, lost_worker_absence_s=lost_worker_absence_s
            ),
            **(run or {}),
        }
        given: dict[str, Any] = {
            "train_loop_config": {"notes": str(tmp_path / "notes")},
            "scaling_config": train.ScalingConfig(
                num_workers=workers, resources_per_worker={"CPU": 0.5}
            ),
            **more,
        }
        return train.DataParallelTrainer(loop, run_config=train.RunConfig(**settings), **given)

    return make


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
            timeout=LONGEST_S,
            check=False,
        )

    return run
