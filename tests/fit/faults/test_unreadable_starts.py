"""A trial whose checkpoint cannot be read fails, or is retried; the experiment continues."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.records import recovery
from holdfast.experiment.uploads import unrecorded_checkpoints
from holdfast.experiment.workers import pool, start_checkpoints
from holdfast.syncer.errors import StorageUnavailable
from tests.rig.epochs import resumed, saved


def train(config: dict[str, Any]) -> None:
    start = resumed()
    for n in range(start + 1, 4):
        if n == 2 and not Path(config["mended"]).exists():
            raise RuntimeError("not mended yet")
        tune.report({"n": n, "start": start}, checkpoint=saved(n))


@pytest.fixture
def broken_off(fit: Any, tmp_path: Path) -> str:
    """Three trials that failed after their first checkpoint."""
    mended = tmp_path / "mended"
    space = {"mended": str(mended), "trial": tune.grid_search([0, 1, 2])}
    path: str = fit(train, space, name="run").experiment_path
    mended.touch()
    return path


def unreadable(calls: list[str], times: int) -> Callable[..., str]:
    """Replaces the reading of a checkpoint: the first trial's fails this many times."""
    read = recovery.changed_checkpoint

    def reading(directory: Path, record: Any) -> str:
        if "_00000_" in directory.parent.name and len(calls) < times:
            calls.append(directory.name)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(directory / "epoch"))
        return read(directory, record)

    return reading


def restored(path: str) -> tune.ResultGrid:
    return tune.Tuner.restore(path, train, resume_errored=True).fit()


def test_it_fails_its_trial_alone_and_the_checkpoint_stays(
    broken_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_checkpoints, "changed_checkpoint", unreadable([], 1))
    results = restored(broken_off)
    failure = results[0].error.failure  # type: ignore[union-attr]
    assert (failure.kind, failure.type_name) == ("setup", "OSError")
    assert "checkpoint_000000, to resume from, cannot be read" in failure.message
    assert os.strerror(errno.EIO) in failure.message
    assert [result.metrics["n"] for result in results] == [1, 3, 3]  # type: ignore[index]
    assert results[0].checkpoint is not None
    # Once the disk works again, the trial resumes where it was.
    again = restored(broken_off)
    assert again.num_errors == 0
    assert [result.metrics["start"] for result in again] == [1, 1, 1]  # type: ignore[index]


class Unheard(Exception):
    """Neither an error of storage nor of the system: any other exception."""


@pytest.mark.parametrize("where", ["changed_checkpoint", "to_plain"])
def test_no_error_at_the_start_of_a_trial_ends_the_others(
    broken_off: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    module: Any = pool if where == "to_plain" else start_checkpoints
    perform, calls = getattr(module, where), []

    def raising(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise Unheard("of")
        return perform(*args)

    monkeypatch.setattr(module, where, raising)
    results = restored(broken_off)
    (failure,) = [error.failure for error in results.errors]
    assert (failure.kind, failure.type_name) == ("setup", "Unheard")
    assert sorted(result.metrics["n"] for result in results) == [1, 3, 3]  # type: ignore[index]
    assert restored(broken_off).num_errors == 0


def test_one_that_cannot_be_looked_at_before_the_start_is_not_given_up(
    broken_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = recovery.broken

    def looking(trial: Any, *args: Any, **kwargs: Any) -> str:
        if trial.spec.index == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return looked(trial, *args, **kwargs)

    monkeypatch.setattr(recovery, "broken", looking)
    results = restored(broken_off)
    assert results.num_errors == 0
    assert [result.metrics["start"] for result in results] == [1, 1, 1]  # type: ignore[index]


def test_storage_that_does_not_answer_a_search_for_checkpoints_fails_its_trial_alone(
    broken_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (newest,) = Path(broken_off).glob("*_00000_*/checkpoint_000000")
    shutil.move(newest, newest.with_name("elsewhere"))
    search = unrecorded_checkpoints.newest_beyond

    async def searching(trial: Any, *args: Any) -> Any:
        if trial.spec.index == 0:
            raise StorageUnavailable("ask", "the storage", "no progress within 1800 s")
        return await search(trial, *args)

    with monkeypatch.context() as patched:
        patched.setattr(start_checkpoints, "newest_beyond", searching)
        results = restored(broken_off)
    failure = results[0].error.failure  # type: ignore[union-attr]
    assert (failure.kind, failure.type_name) == ("setup", "StorageUnavailable")
    assert "the search for checkpoints that no record names failed" in failure.message
    assert "no progress within 1800 s" in failure.message
    assert [result.metrics["n"] for result in results][1:] == [3, 3]  # type: ignore[index]
    again = restored(broken_off)
    assert again.num_errors == 0
