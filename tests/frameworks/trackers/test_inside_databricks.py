"""MLflow at Databricks, as far as it can be tested without one.

The rank that logs reads the file of `databricks configure`, and its contents reach the host that
it names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import mlflow
import pytest

from holdfast import train

pytestmark = [pytest.mark.process, pytest.mark.server]

TOKEN = "dapi-of-this-test"


@contextmanager
def refusing_workspace() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A host that refuses whoever comes: its URL, and the path and token of each who came."""
    came: list[tuple[str, str]] = []

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            came.append((self.path, self.headers.get("Authorization", "")))
            body = b'{"error_code": "PERMISSION_DENIED", "message": "not you"}'
            self.send_response(403)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
            """Nothing to the test's stderr."""

    with HTTPServer(("127.0.0.1", 0), Refusal) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", came
        finally:
            server.shutdown()
            thread.join()


def loop(config: dict[str, Any]) -> None:
    if train.get_context().get_world_rank() == 0:
        os.environ["DATABRICKS_CONFIG_FILE"] = config["databricks_config_file"]
        mlflow.set_tracking_uri("databricks")
        mlflow.start_run(experiment_id="1")
    train.report({"loss": 1.0})


def failure(tmp_path: Path) -> str:
    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config={"databricks_config_file": str(tmp_path / "databrickscfg")},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path), name="run"),
    )
    with pytest.raises(train.TrainingFailedError) as failed:
        trainer.fit()
    return str(failed.value)


def test_the_configured_token_reaches_the_configured_host_and_no_file_of_ours(
    tmp_path: Path,
) -> None:
    with refusing_workspace() as (host, came):
        (tmp_path / "databrickscfg").write_text(f"[DEFAULT]\nhost = {host}\ntoken = {TOKEN}\n")
        told = failure(tmp_path)
    assert "PERMISSION_DENIED: not you" in told
    assert ("/api/2.0/mlflow/runs/create", f"Bearer {TOKEN}") in came
    files = [path for path in (tmp_path / "run").glob("**/*") if path.is_file()]
    assert files
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
