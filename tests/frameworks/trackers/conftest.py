"""Fixtures for tests of trackers: a real MLflow server, and a machine that sends nothing out."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.rig.trackers.mlflow_server import MlflowServer, serve_mlflow

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "COMET_LOGGING_CONSOLE": "ERROR",
    "COMET_DISABLE_AUTO_LOGGING": "1",
}
_TRACKERS = ("WANDB_", "MLFLOW_", "COMET_")


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> Iterator[None]:
    """Hides the developer's settings, and sends nothing to the makers of trackers."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_TRACKERS):
                patch.delenv(name)
        for name, value in _QUIET.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """An MLflow tracking server with SQLite, for the whole session."""
    with serve_mlflow(tmp_path_factory.mktemp("mlflow")) as server:
        yield server
