"""The folders of a worker on a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.worker import objects
from holdfast.experiment.worker.host import TrialHost
from holdfast.experiment.worker.job import Assignment, Job
from holdfast.runtime.fleet.facts import NODE_DIR

CONTROLLERS = "/the/controllers/own"


class Recorder(TrialHost):
    """Remembers the job of the attempt that it runs."""

    ran: Job | None = None

    def host(self, channel: Any, assignment: Assignment, kept: Any) -> tuple[Any, bool]:
        self.ran = self._job
        return None, False


class OneOrder:
    """A connection with an order to run an attempt."""

    def send(self, message: list[Any]) -> None: ...

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return ["run", ["t", "t", "t", 1, {}, 0, 0.0, 0, None, [], "PACK", 1.0]]

    def close(self) -> None: ...


@pytest.mark.parametrize("on_node", [True, False])
def test_a_worker_on_a_node_writes_to_the_scratch_folder_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_node: bool
) -> None:
    if on_node:
        monkeypatch.setenv(NODE_DIR, str(tmp_path))
        monkeypatch.setattr(objects, "_copies", [])  # of this process
    host = Recorder()
    host.take(
        Job(
            trainable=None,
            param_space={},
            experiment_name="run",
            experiment_dir=CONTROLLERS,
            storage="s3://bucket/run",
            working_dir=CONTROLLERS,
        )
    )
    host.run(OneOrder())
    assert host.ran is not None
    assert host.ran.experiment_dir == (f"{tmp_path}/experiment" if on_node else CONTROLLERS)
    assert host.ran.working_dir == (os.getcwd() if on_node else CONTROLLERS)
    # A fit() inside the trial runs its own trials here, in its own folders.
    assert NODE_DIR not in os.environ
