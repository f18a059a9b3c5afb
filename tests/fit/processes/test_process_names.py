"""What `top` and `ps` show of a run's processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast import tune

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names to set"),
]


def shown(pid: int | str) -> tuple[str, str]:
    """The names that `top` and `ps aux` show."""
    process = Path("/proc", str(pid))
    words = process.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()
    return process.joinpath("comm").read_text().strip(), words.strip()


def test_each_process_of_a_run_has_its_name_and_the_script_keeps_its_own(fit: Any) -> None:
    script, pid = shown("self"), os.getpid()
    servers = {child.pid for child in psutil.Process().children(recursive=True)}  # of other tests

    def train(config: dict[str, Any]) -> None:
        folder = tune.staging_directory()
        Path(folder, "weights").touch()
        # Returns when the uploader has committed it.
        mode = tune.CheckpointUploadMode.SYNC
        checkpoint = tune.Checkpoint.from_directory(folder)
        tune.report({"loss": 1}, checkpoint=checkpoint, checkpoint_upload_mode=mode)
        while not Path("result.json").exists():  # of the projector
            tune.report({"loss": 1})
        found = {child.pid for child in psutil.Process(pid).children(recursive=True)} - servers
        tune.report({"loss": 0, "seen": dict(shown(child) for child in found)})

    (result,) = fit(train, name="digits")
    trial = result.metrics["trial_id"]
    assert result.metrics["seen"] == {
        f"holdfast:{trial[-5:]}": f"holdfast: trial {trial} digits",
        "holdfast:warm": "holdfast: warm parent digits",
        "holdfast:upload": "holdfast: uploader digits",
        "holdfast:files": "holdfast: projector digits",
    }
    assert shown("self") == script


def test_a_run_in_the_scripts_own_process_does_not_rename_it(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    seen = []

    def train(config: dict[str, Any]) -> None:
        seen.append(shown("self"))

    before = shown("self")
    fit(train)
    assert seen == [before]
