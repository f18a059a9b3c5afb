"""Whole experiments, from outside: what every test of `fit()` stands on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import psutil
import pytest

import holdfast
from holdfast import tune

_MARK = "HOLDFAST_TEST_MARK"
_OURS = ("RAY_", "HOLDFAST_", "TUNE_", "OMP_", "CUDA_")

Fit = Callable[..., tune.ResultGrid]
RunScript = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the developer's: neither variables nor a home directory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_OURS):
                patch.delenv(name)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("HOLDFAST_TENSORBOARD", "0")
        patch.setenv(_MARK, uuid.uuid4().hex)
        yield


@pytest.fixture(scope="module", autouse=True)
def _trainables_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test file is no module that a worker could import, so it travels as a script's does."""
    module: ModuleType = sys.modules[request.module.__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After each test: no process and no thread of an experiment, and `init` is forgotten."""
    yield
    holdfast.shutdown()
    left = [process for process in psutil.process_iter() if _is_ours(process)]
    _, alive = psutil.wait_procs(left, timeout=2)
    assert not alive, f"processes outlived their experiment: {alive}"
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-"):
            thread.join(5)
            assert not thread.is_alive(), f"{thread.name} outlived its experiment"


def _is_ours(process: psutil.Process) -> bool:
    try:
        mark = process.environ().get(_MARK)
    except psutil.Error:
        # Another user's process, or one that has just ended.
        return False
    return mark == os.environ[_MARK] and process.pid != os.getpid()


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
