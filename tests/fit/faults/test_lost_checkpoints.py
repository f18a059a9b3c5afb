"""A trial whose checkpoint is lost during a run fails, or falls back; the experiment continues."""

from __future__ import annotations

import errno
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import read_events
from holdfast.experiment.workers import start_checkpoints
from holdfast.syncer.journal.segment import Position
from holdfast.trial.events import Reported
from holdfast.tune.schedulers import PopulationBasedTraining
from tests.rig.epochs import resumed, saved


def train(config: dict[str, Any]) -> None:
    """The first attempt of trial 0 fails in epoch 3, and deletes the given checkpoints."""
    start, context = resumed(), tune.get_context()
    for n in range(start + 1, 5):
        if n == 3 and config["trial"] == 0 and context.get_attempt() == 1:
            for name in config["takes"]:
                shutil.rmtree(Path(context.get_trial_dir(), name))
            raise RuntimeError("it takes its checkpoints with it")
        tune.report({"n": n, "start": start}, checkpoint=saved(n))


@pytest.mark.parametrize(
    ("takes", "start"),
    [
        (["checkpoint_000001"], 1),
        (["checkpoint_000000", "checkpoint_000001"], 0),
    ],
)
def test_a_retry_falls_back_to_the_checkpoint_before_or_begins_again(
    fit: Any, capfd: pytest.CaptureFixture[str], takes: list[str], start: int
) -> None:
    results = fit(
        train,
        {"trial": tune.grid_search([0, 1]), "takes": takes},
        failure_config=tune.FailureConfig(max_failures=1),
    )
    assert results.num_errors == 0
    assert [result.metrics["n"] for result in results] == [4, 4]
    assert [result.metrics["start"] for result in results] == [start, 0]
    said = capfd.readouterr().err
    assert all(said.count(f"checkpoint {int(name[-1])} of trial") == 1 for name in takes), said


def train_population(config: dict[str, Any]) -> None:
    loss, first = 1.0, 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            loss, first = json.loads(Path(folder, "state").read_text())
    for epoch in range(first, 5):
        loss *= config["rate"]
        folder = tune.staging_directory()
        Path(folder, "state").write_text(json.dumps([loss, epoch + 1]))
        checkpoint = tune.Checkpoint.from_directory(folder)
        tune.report({"loss": loss}, checkpoint=checkpoint)


def test_a_clone_whose_source_cannot_be_read_resumes_from_its_own(
    fit: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    copied: list[str] = []

    def copying(source: Path, staging_root: Path) -> Any:
        copied.append(source.name)
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(source / "state"))

    monkeypatch.setattr(start_checkpoints, "copy_checkpoint", copying)
    policy = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        quantile_fraction=0.5,
        synch=True,
        hyperparam_mutations={"rate": tune.uniform(0.1, 0.9)},
    )
    results = fit(
        train_population,
        {"rate": tune.grid_search([0.9, 0.5])},
        tune.TuneConfig(metric="loss", mode="min", scheduler=policy),
        verbose=1,
    )
    assert copied
    assert results.num_errors == 0
    assert [result.metrics["training_iteration"] for result in results] == [4, 4]
    said = capfd.readouterr().err
    assert "cannot resume from checkpoint 1 of" in said
    assert os.strerror(errno.EIO) in said


def journal_cut_before(root: Path, of_iteration: int) -> None:
    """As after a disk that has lost the end of the journal."""
    (segment,) = (root / "journal").glob("*.log")
    for record, start in starts(root):
        event = record.event
        if isinstance(event, Reported) and event.iteration == of_iteration:
            os.truncate(segment, start)
            return
    raise AssertionError("no such report")


def starts(root: Path) -> list[tuple[Any, int]]:
    ends = [(record, end.offset) for record, end in read_events(Layout(root).journal, Position())]
    return [(record, before) for (_, before), (record, _) in pairwise(ends)]


@pytest.fixture
def without_end(fit: Any) -> Path:
    """Cut the journal of an ended experiment of one trial, so that its reports are missing."""
    space = {"trial": tune.grid_search([1]), "takes": []}
    root = Path(fit(train, space, name="run").experiment_path)
    journal_cut_before(root, 1)
    return root


def test_a_trial_that_had_begun_resumes_from_what_its_folder_has(without_end: Path) -> None:
    (result,) = tune.Tuner.restore(str(without_end), train).fit()
    assert result.error is None
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path).name == "checkpoint_000003"


def test_one_that_must_start_again_does_not(without_end: Path) -> None:
    anew = tune.ResumeConfig(unfinished="restart")
    (result,) = tune.Tuner.restore(str(without_end), train, resume_config=anew).fit()
    assert result.metrics is not None
    assert (result.metrics["start"], result.metrics["n"]) == (0, 4)
