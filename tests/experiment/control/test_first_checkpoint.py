"""The first checkpoint starts the uploader's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.control.controller import Controller
from holdfast.experiment.workers.pool import WorkerPool
from holdfast.trial.trial import CheckpointUploadMode


def trains(config: dict[str, Any]) -> None:
    folder = Path(tune.staging_directory())
    (folder / "model").write_text("weights")
    checkpoint = tune.Checkpoint.from_directory(folder)
    tune.report({"loss": 1.0}, checkpoint=checkpoint, checkpoint_upload_mode=config["mode"])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (CheckpointUploadMode.ASYNC, ["answered", "opened"]),
        (CheckpointUploadMode.SYNC, ["opened", "answered"]),
    ],
)
def test_a_report_is_answered_before_the_uploader_starts_unless_it_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, expected: list[str]
) -> None:
    order: list[str] = []
    reply, uploads = WorkerPool.reply, Controller._uploads

    def answer(pool: WorkerPool, *arguments: Any) -> None:
        order.append("answered")
        reply(pool, *arguments)

    def opened(controller: Controller) -> Any:
        if controller.uploads is None:
            order.append("opened")
        return uploads(controller)

    monkeypatch.setattr(WorkerPool, "reply", answer)
    monkeypatch.setattr(Controller, "_uploads", opened)
    tune.Tuner(
        trains,
        param_space={"mode": mode},
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    ).fit()
    assert order == expected
