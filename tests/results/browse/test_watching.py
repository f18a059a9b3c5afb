"""`holdfast show --watch`: what is shown again, how often it looks, and when it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.results import following
from holdfast.results.following import Watcher
from holdfast.results.reading import KeptRecords, NeverBegun, RunStarts, read_tree
from holdfast.syncer.errors import StorageUnavailable
from tests.rig.runs.recorded import RecordedExperiment


class World:
    """A run that another process holds; a step of `story` happens in each wait."""

    def __init__(self, root: Path, story: list[Callable[[World], None]]) -> None:
        self.story = story
        self.run = RecordedExperiment(root, metric="loss", mode="min")
        self.trial = self.run.begin({"lr": 0.1})
        self.lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.trouble: Exception | None = None
        self.reads = 0
        self.look_takes_s = 0.0
        self.turns = count()
        self.waited: list[float] = []
        self.said: list[str] = []

    def find(self, kept: KeptRecords) -> ExperimentView:
        self.reads += 1
        if self.trouble is not None:
            raise self.trouble
        return replace(read_tree(self.run.layout, self.run.location), shown="run")

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.story.pop(0)(self)

    def watched(self, interval_s: float | None = None) -> list[tuple[Condition, bool]]:
        watcher = Watcher(
            self.find,
            interval_s,
            wait=self.wait,
            tell=self.said.append,
            cpu=lambda: next(self.turns) * self.look_takes_s,
            clock=lambda: 10.0 * len(self.waited),
            now=lambda: self.run.now,
        )
        return [(one.condition(self.run.now), is_new) for one, is_new in watcher.views()]


def nothing(world: World) -> None:
    pass


def reports(world: World) -> None:
    world.run.report(world.trial, {"loss": 0.5})


def ends(world: World) -> None:
    world.run.finish(world.trial)
    world.run.ends()
    os.close(world.lock)


def is_killed(world: World) -> None:
    world.run.report(world.trial, {"loss": 0.4})
    os.close(world.lock)


def test_it_shows_each_change_and_ends_with_the_run(tmp_path: Path) -> None:
    world = World(tmp_path / "run", [nothing, reports, nothing, ends])
    seen = world.watched(3.0)
    assert [is_new for _, is_new in seen] == [True, False, True, False, True]
    assert [condition is Condition.LIVE for condition, _ in seen] == [True] * 4 + [False]
    assert world.waited == [3.0] * 4
    assert world.said == []


def test_records_are_read_as_a_whole_once(tmp_path: Path) -> None:
    world = World(tmp_path / "run", [nothing, reports, nothing, ends])
    world.watched()
    assert world.reads == 1


def test_a_killed_run_ends_it_too(tmp_path: Path) -> None:
    assert World(tmp_path / "run", [is_killed]).watched()[-1][0] is Condition.INTERRUPTED


def test_storage_that_does_not_answer_is_asked_again_and_mentioned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = StorageUnavailable("read", "s3://bucket/run", "no answer")

    def broken(*args: object) -> int:
        raise trouble

    def fails(world: World) -> None:
        world.run.report(world.trial, {"loss": 0.3})
        monkeypatch.setattr(following, "segment_size", broken)

    def answers(world: World) -> None:
        monkeypatch.undo()

    world = World(tmp_path / "run", [fails, nothing, answers, ends])
    assert [is_new for _, is_new in world.watched()] == [True, True, True]
    assert world.said == ["cannot read s3://bucket/run: no answer. Retrying"]
    world = World(tmp_path / "other", [])
    world.trouble = trouble
    with pytest.raises(StorageUnavailable):  # at the first look it is an error
        world.watched()


def test_a_run_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    def begins(world: World) -> None:
        world.trouble = None

    world = World(tmp_path / "run", [nothing, begins, ends])
    world.trouble = RunStarts("it has no record yet", "run")
    assert len(world.watched()) == 2
    assert world.said == ["it has no record yet"]
    world = World(tmp_path / "other", [])
    world.trouble = NeverBegun("it has no record", "run")
    with pytest.raises(NeverBegun):
        world.watched()
