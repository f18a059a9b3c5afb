"""A real MLflow tracking server on loopback, with SQLite."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.dataclass import dataclass
from tests.rig.storage.s3_server import served

_READY_S = 180.0
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowServer:
    """A server that runs: its URL, the process id of its command, and where it keeps artifacts."""

    uri: str
    pid: int
    artifacts: Path


@contextmanager
def serve_mlflow(folder: Path) -> Iterator[MlflowServer]:
    """A server with its database and artifacts in `folder`.

    Raises RuntimeError if it does not start within three minutes; a busy machine needs one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    artifacts = folder / "artifacts"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(_free_port()), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(artifacts)]
    with served(command, _QUIET, ready_s=_READY_S) as (port, pid):
        yield MlflowServer(uri=f"http://127.0.0.1:{port}", pid=pid, artifacts=artifacts)


def _free_port() -> int:
    """A free port: MLflow does not accept 0."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port
