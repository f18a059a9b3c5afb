"""Isolates experiments in the process of a test: hides the developer's settings, and checks that
nothing is left."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import cloudpickle
import psutil
import pytest

import holdfast
from holdfast.syncer.files.threads import NAME as STORAGE_THREAD
from tests.rig.workers.processes import PATIENCE_S

_MARK = "HOLDFAST_TEST_MARK"
# Most users do not set it.
_OURS = ("RAY_", "HOLDFAST_", "TUNE_", "OMP_", "CUDA_", "PYTHONUNBUFFERED")


@contextmanager
def own_environment(home: Path) -> Iterator[None]:
    """Without the developer's variables and home directory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_OURS):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("HOLDFAST_TENSORBOARD", "0")
        patch.setenv(_MARK, uuid.uuid4().hex)
        yield


@contextmanager
def trainables_by_value(module: ModuleType) -> Iterator[None]:
    """Pickle test files by value, like a script: workers cannot import them."""
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """Check afterwards that no process or thread of an experiment is left, and undo `init`."""
    yield
    holdfast.shutdown()
    left = [process for process in psutil.process_iter() if _is_ours(process)]
    _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
    assert not alive, f"processes outlived their experiment: {alive}"
    for thread in threading.enumerate():
        # Threads that wait for the next call of storage end by themselves, and hold nothing.
        if thread.name.startswith("holdfast-") and not thread.name.startswith(STORAGE_THREAD):
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} outlived its experiment"


def _is_ours(process: psutil.Process) -> bool:
    try:
        mark = process.environ().get(_MARK)
    except psutil.Error:
        # Another user's process, or one that has just ended.
        return False
    return mark == os.environ[_MARK] and process.pid != os.getpid()


# -- as fixtures, for the conftest.py or the test module that imports them ------------------------


@pytest.fixture(scope="module", autouse=True)
def in_own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_environment(tmp_path_factory.mktemp("home")):
        yield


@pytest.fixture(scope="module", autouse=True)
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    with trainables_by_value(sys.modules[request.module.__name__]):
        yield


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    with nothing_is_left():
        yield
