"""The files of a queue."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.experiment.queue.queue_folder import JSON, STDOUT, Job, QueueFolder, State
from holdfast.trial.errors import InvalidConfig

# What a release has written: it must load for ever.
WRITTEN = """{
 "version": 1,
 "id": 1,
 "name": "train",
 "command": ["/usr/bin/python3", "train.py", "--lr", "1"],
 "directory": "/home/me",
 "added_at": 1795706198.27
}"""


def add(folder: QueueFolder, name: str = "train") -> Job:
    return folder.add(
        lambda number: Job(id=number, name=name, command=["true"], directory="/", added_at=1.0)
    )


def stop(folder: QueueFolder) -> Job:
    return folder.change(1, Job.stopped_by_user)


@pytest.fixture
def folder(tmp_path: Path) -> QueueFolder:
    return QueueFolder(tmp_path / "queue")


def test_jobs_are_numbered_and_their_files_can_be_read_by_hand(folder: QueueFolder) -> None:
    assert [add(folder).id, add(folder).id] == [1, 2]
    assert json.loads((folder.path / "0002.json").read_text())["command"] == ["true"]
    assert [one.job.id for one in folder.jobs()] == [1, 2]


def test_a_file_of_the_first_format_loads(folder: QueueFolder) -> None:
    folder.file(1, JSON).write_text(WRITTEN)
    (listed,) = folder.jobs()
    assert listed.state is State.WAITING
    assert list(listed.job.command) == ["/usr/bin/python3", "train.py", "--lr", "1"]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"version": 1', '"version": 2'), ('"id": 1', '"id": 7'), ('"name"', '"nome"'), ("}", "")],
)
def test_a_file_that_is_no_job_is_named(folder: QueueFolder, old: str, new: str) -> None:
    folder.file(1, JSON).write_text(WRITTEN.replace(old, new))
    with pytest.raises(InvalidConfig, match=r"0001\.json is not a job of this version"):
        folder.jobs()


def test_a_queue_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InvalidConfig, match="others can write to the queue"):
        QueueFolder(tmp_path / "open")


def test_the_usual_folder_follows_the_environment(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path / "data")}
    assert QueueFolder.of(None, environ).path == tmp_path / "data/holdfast/queue"
    environ["HOLDFAST_QUEUE"] = str(tmp_path / "named")
    assert QueueFolder.of(None, environ).path == tmp_path / "named"
    assert QueueFolder.of(str(tmp_path / "given"), environ).path == tmp_path / "given"


def test_one_process_has_a_job_at_a_time(folder: QueueFolder) -> None:
    add(folder)
    lock = folder.lock(1)
    assert lock is not None
    assert folder.lock(1) is None
    with pytest.raises(InvalidConfig, match="job 1 runs: stop it first"):
        folder.remove(1)
    os.close(lock)
    folder.file(1, STDOUT).write_text("output")
    folder.remove(1)
    assert sorted(path.name for path in folder.path.iterdir()) == [".changing"]
    with pytest.raises(InvalidConfig, match="there is no job 1"):
        folder.remove(1)


def test_a_runner_lives_until_its_file_is_free(folder: QueueFolder) -> None:
    (folder.path / ".runner-left").touch()  # of a runner that was killed
    assert not folder.has_runner(".runner-left")
    with folder.runner() as first, folder.runner() as second:
        assert folder.has_runner(first)
        assert folder.has_runner(second)
        assert not (folder.path / ".runner-left").exists()
    assert not folder.has_runner(first)
    assert [*folder.path.iterdir()] == [folder.path / ".changing"]


def test_a_change_of_a_job_can_be_seen(folder: QueueFolder) -> None:
    for change, is_seen in ((add, True), (stop, True), (QueueFolder.jobs, False)):
        os.utime(folder.path, ns=(0, 0))  # long ago: times of files are coarse
        change(folder)
        assert (folder.changed_at > 0) is is_seen
