"""`holdfast logs --follow`: its output, when it looks, and its messages."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.records.view import ExperimentView
from holdfast.results import logs
from holdfast.results.following import Followed
from holdfast.results.logs import TrialLog
from holdfast.results.reading import KeptRecords, read_tree
from holdfast.syncer.errors import StorageUnavailable
from tests.rig.runs.recorded import RecordedExperiment

INTERVAL_S = 2.0


class World:
    """A trial's log and its run; a step of `story` happens in each wait."""

    def __init__(self, root: Path, story: list[Callable[[World], None]], **spec: Any) -> None:
        self.story = story
        self.run = RecordedExperiment(root, **spec)
        self.trial = self.run.begin()
        self.at = self.look_takes_s = 0.0
        self.looks = count()
        self.said: list[str] = []
        self.writes("")
        self.lock = -1
        self.hold()

    def hold(self) -> None:
        self.lock = os.open(self.run.layout.lock, os.O_RDWR)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def release(self) -> None:
        os.close(self.lock)

    def writes(self, text: str, mode: str = "a") -> None:
        folder = self.run.folder(self.trial)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "stdout", mode) as file:
            file.write(text)

    def find(self, kept: KeptRecords) -> ExperimentView:
        return read_tree(self.run.layout, self.run.location)

    def wait(self, seconds: float) -> None:
        assert seconds == INTERVAL_S
        self.at += seconds
        self.story.pop(0)(self)

    def followed(self) -> str:
        followed = Followed(self.find, clock=lambda: self.at, now=lambda: self.run.now)
        log = TrialLog(
            followed,
            self.trial,
            "stdout",
            INTERVAL_S,
            wait=self.wait,
            tell=self.said.append,
            clock=lambda: self.at,
            cpu=lambda: next(self.looks) * self.look_takes_s,
            now=lambda: self.run.now,
        )
        found = b"".join(log.until_ended()).decode()
        followed.close()
        return found


def writes(text: str) -> Callable[[World], None]:
    return lambda world: world.writes(text)


def ends(world: World) -> None:
    """With a last line that exists when the records show the end."""
    world.writes("the last\n")
    world.run.finish(world.trial)


def dies(world: World) -> None:
    world.release()


def restored(world: World) -> None:
    world.hold()


def test_each_byte_is_given_once_and_the_last_ones_too(tmp_path: Path) -> None:
    world = World(tmp_path / "run", [writes("one\n"), writes("two\nthree"), writes("\n"), ends])
    assert world.followed() == "one\ntwo\nthree\nthe last\n"
    assert world.said == []


def test_one_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    def begins(world: World) -> None:
        world.run.finish(first)
        world.run.start(world.trial)

    world = World(tmp_path / "run", [writes(""), begins, ends], max_concurrent=1)
    first, world.trial = world.trial, world.run.suggest()
    assert world.followed() == "the last\n"
    assert world.said == ["the trial has not begun: waiting until it does"]


def test_a_run_that_is_killed_is_reported_once_for_each_time_and_waited_for(
    tmp_path: Path,
) -> None:
    quiet = writes("")
    world = World(tmp_path / "run", [dies, quiet, restored, writes("again\n"), dies, quiet, ends])
    assert world.followed() == "again\nthe last\n"
    assert len(world.said) == 2
    assert world.said[0].startswith("no process runs the experiment: waiting for a restore")


def test_a_storage_that_does_not_answer_is_reported_once_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise StorageUnavailable("read", "s3://bucket/run/stdout", "no answer")

    def fails(world: World) -> None:
        monkeypatch.setattr(logs, "piece_from", broken)

    def answers(world: World) -> None:
        monkeypatch.undo()

    story = [fails, writes("meanwhile\n"), answers, fails, ends, answers]
    world = World(tmp_path / "run", story)
    assert world.followed() == "meanwhile\nthe last\n"
    assert [line.count("no answer") for line in world.said] == [1, 1]


def test_records_that_are_long_to_read_are_read_rarely_and_the_file_as_often_as_ever(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "run", [writes(".")] * 30 + [ends] + [writes("")] * 40)
    world.look_takes_s = 1.0
    assert world.followed() == "." * 30 + "the last\n"
    assert next(world.looks) <= 2 * (2 + world.at / 20)


def test_a_file_that_is_shorter_than_before_is_given_from_its_beginning(tmp_path: Path) -> None:
    def written_again(world: World) -> None:
        world.writes("new\n", "w")

    world = World(tmp_path / "run", [writes("old and long\n"), written_again, ends])
    assert world.followed() == "old and long\nnew\nthe last\n"
    assert world.said == ["the file is now shorter than before: showing it from its beginning"]
