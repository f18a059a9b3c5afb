"""A real S3 server for a folder, and an experiment that was killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.storage.s3_server import S3Server, rclone_server


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server


USER_SCRIPT = Path(__file__).parent / "user_script.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An experiment in `place` at one moment, with the notes of its script.

    Each test gets a copy there, as after its own run.
    """

    place: Path
    kept: Path

    def take(self) -> None:
        shutil.copytree(self.place / "storage", self.kept / "storage")
        (self.kept / "bench").mkdir()
        shutil.copy(self.place / "bench" / "notes", self.kept / "bench")

    def put_back(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.kept, self.place)


@pytest.fixture(scope="session")
def taken_when_killed(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    folder = tmp_path_factory.mktemp("killed")
    taken = Taken(place=folder / "place", kept=folder / "kept")
    with workbench(taken.place, USER_SCRIPT) as bench:
        bench.killed_in(3, in_step=True)
    taken.take()
    return taken


@pytest.fixture(scope="session")
def taken_when_committed(
    taken_when_killed: Taken, tmp_path_factory: pytest.TempPathFactory
) -> Taken:
    taken = Taken(place=taken_when_killed.place, kept=tmp_path_factory.mktemp("committed"))
    taken_when_killed.put_back()
    with workbench(taken.place, USER_SCRIPT) as bench:
        bench.restore({"resume_unfinished": False}).succeeds()
    taken.take()
    return taken


@pytest.fixture
def killed(taken_when_killed: Taken) -> Iterator[Bench]:
    """An experiment of two trials that was killed after two of four epochs."""
    taken_when_killed.put_back()
    with workbench(taken_when_killed.place, USER_SCRIPT) as bench:
        yield bench


@pytest.fixture
def committed(taken_when_committed: Taken) -> Iterator[Bench]:
    """The same, restored since then without running a trial: its checkpoints are committed, and it
    has snapshots."""
    taken_when_committed.put_back()
    with workbench(taken_when_committed.place, USER_SCRIPT) as bench:
        yield bench
