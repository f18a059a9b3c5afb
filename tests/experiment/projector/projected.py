"""A run on the disk, a projector of it, and what the projector's files say."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.trial.config import FailureConfig
from tests.rig.runs.recorded import RecordedExperiment

PROJECTIONS = ("params.json", "result.json", "progress.csv", "error.txt")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=9))
    yield recorded
    recorded.close()


def make_projector(layout: Layout, boot: str = "one", **wanted: Any) -> Projector:
    return Projector(layout, ProjectorSettings(**wanted), Clock(), boot=boot)


def caught_up(layout: Layout, boot: str = "one") -> Projector:
    """A projector that has written everything in the journal so far."""
    projector = make_projector(layout, boot)
    projector.catch_up()
    return projector


def live(run: RecordedExperiment) -> None:
    """Trials of every kind: done, failed for good, retried, running, waiting."""
    for kind in ("done", "retried", "running"):
        trial = run.begin({"kind": kind})
        for step in range(4):
            run.report(trial, {"loss": step, f"late_{step}": 1}, checkpoint="staged" * (step == 1))
        if kind == "done":
            run.finish(trial)
        if kind == "retried":
            run.fail(trial)
            run.start(trial)
            run.report(trial, {"loss": 77})
    run.suggest({"kind": "waiting"})


def contents(root: Path) -> dict[str, bytes]:
    """Every projection of every trial, with TensorBoard's."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.glob("train_*/*"))
        if path.name in PROJECTIONS or (".tfevents." in path.name and path.stat().st_size)
    }


def expected(run: RecordedExperiment, tmp_path: Path) -> dict[str, bytes]:
    """The files of a projector that reads the whole journal into a clean directory."""
    clean = Layout(tmp_path / "clean")
    shutil.rmtree(clean.root, ignore_errors=True)
    shutil.copytree(run.layout.journal, clean.journal)
    caught_up(clean)
    return contents(clean.root)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "result.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def loss_of(run: RecordedExperiment, trial: str) -> list[int]:
    return [row["loss"] for row in rows_of(run.folder(trial))]
