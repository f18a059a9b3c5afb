"""What a report waits for that has the first checkpoint of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.control.services import open_uploads
from holdfast.experiment.workers.pool import WorkerPool


def test_it_is_answered_before_the_uploader_starts(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    replied = WorkerPool.reply

    def opened(*args: Any, **kwargs: Any) -> Any:
        seen.append("uploader starts")
        return open_uploads(*args, **kwargs)

    def reply(self: WorkerPool, *args: Any) -> None:
        seen.append("answer")
        replied(self, *args)

    monkeypatch.setattr("holdfast.experiment.control.run.open_uploads", opened)
    monkeypatch.setattr(WorkerPool, "reply", reply)

    def train(config: dict[str, Any]) -> None:
        for epoch in range(2):
            directory = tune.staging_directory()
            Path(directory, "weights").write_text(f"{epoch}")
            tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(directory))

    (result,) = fit(train)
    assert seen == ["answer", "uploader starts", "answer"]
    assert Path(result.checkpoint.path, ".holdfast.json").exists()
