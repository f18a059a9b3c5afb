"""Mounts a user's folder inside an experiment, and lets everything work that removes something.

Nothing of that folder may be removed; what does not remove its place says where it is.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.cli import main
from tests.rig.mounts import bind, tmpfs

PLACE, HOW = Path(sys.argv[1]), sys.argv[2]
DATA = PLACE / "data"


def mount(at: Path) -> None:
    if HOW == "bind":
        bind(DATA, at)
    else:
        tmpfs(at)
        shutil.copytree(DATA, at, dirs_exist_ok=True)


def train(config: dict[str, Any]) -> None:
    for epoch in range(3):
        folder = Path(tune.staging_directory())
        (folder / "w").write_text(str(epoch))
        tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(folder))
        if not epoch:
            mount(Path("checkpoint_000000", "data"))


def said(call: Callable[[], object]) -> str:
    with redirect_stderr(io.StringIO()) as told:
        call()
    return told.getvalue()


def holds(at: Path, told: str) -> None:
    assert (at / "weights").read_text() == "mine", at
    assert (DATA / "weights").read_text() == "mine"
    assert str(at) in told, (at, told)


def run() -> None:
    DATA.mkdir()
    (DATA / "weights").write_text("mine")
    config = tune.RunConfig(
        storage_path=str(PLACE / "results"),
        name="run",
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
    )
    results: list[tune.ResultGrid] = []
    # Retention.
    told = said(lambda: results.append(tune.Tuner(train, run_config=config).fit()))
    assert results[0][0].error is None, results[0][0].error
    assert results[0][0].metrics, told
    assert results[0][0].metrics["epoch"] == 2, told
    trial = Path(results[0][0].path)
    holds(trial / "checkpoint_000000" / "data", told)
    # A restore removes what was superseded.
    told = said(lambda: tune.Tuner.restore(str(trial.parent), train).fit())
    holds(trial / "checkpoint_000000" / "data", told)
    # The doctor, of what has a name that only holdfast uses.
    left = trial / ".removed-0123456789abcdef"
    mount(left / "data")
    told = said(lambda: main(["doctor", "gc", str(trial.parent), "--yes"]))
    holds(left / "data", told)
    # The whole experiment: nothing is removed, not even what has no mount in it.
    mount(trial)
    told = said(lambda: main(["rm", "--yes", str(trial.parent)]))
    holds(trial, told)
    assert (trial.parent / "journal").is_dir()


run()
print("DONE")
