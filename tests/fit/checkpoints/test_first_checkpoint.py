"""What a report with a checkpoint waits for, besides its copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast import tune
from holdfast.experiment.workers.pool import WorkerPool


def is_uploader(process: psutil.Process) -> bool:
    try:
        return "holdfast: uploader" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or what another test has left of one
        return False


def test_the_uploader_leaves_the_cores_to_the_trials(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    replied = WorkerPool.reply

    def reply(self: WorkerPool, *args: Any) -> None:
        seen.extend(each.nice() for each in filter(is_uploader, psutil.Process().children()))
        replied(self, *args)

    monkeypatch.setattr(WorkerPool, "reply", reply)

    def train(config: dict[str, Any]) -> None:
        directory = tune.staging_directory()
        Path(directory, "weights").write_text("1")
        checkpoint = tune.Checkpoint.from_directory(directory)
        mode = tune.CheckpointUploadMode.SYNC  # the uploader has worked when this is answered
        tune.report({"nice": os.nice(0)}, checkpoint=checkpoint, checkpoint_upload_mode=mode)

    (result,) = fit(train)
    assert seen == [result.metrics["nice"] + 5]
