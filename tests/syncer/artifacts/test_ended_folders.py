"""Folders of ended trials that storage has as they are: a publication does not look at them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.artifacts import mirror, settings
from holdfast.syncer.artifacts.mirror import EndedFolders
from holdfast.syncer.artifacts.settings import ENDED_NAME
from holdfast.syncer.files import durable
from holdfast.syncer.journal.journal import START
from holdfast.syncer.uploader.uploader import Uploader
from tests.rig.storage.stores import MemoryStore
from tests.syncer.artifacts.test_mirror import Machine

pytestmark = pytest.mark.anyio
ENDED = {"trial": "TERMINATED 1"}
_looked: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _looked is not None and event in ("os.scandir", "open") and type(arguments[0]) is str:
        _looked.append(arguments[0])


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    sys.addaudithook(_note)  # which stays until the process ends


@contextmanager
def looking(machine: Machine) -> Iterator[list[str]]:
    """Collects what is listed and opened in the block below the trial's folder, and listings of it
    in storage."""
    global _looked
    found: list[str] = []
    looked = _looked = []
    machine.store.log.clear()
    try:
        yield found
    finally:
        _looked = None
    here = str(machine.root / "trial")
    found += [path for path in looked if path.startswith(here)]
    found += [key for what, key in machine.store.log if what == "list" and key.startswith("trial")]


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def machine(tmp_path: Path, memory: MemoryStore) -> Machine:
    return Machine(tmp_path / "run", memory)


async def opened(machine: Machine, ended: dict[str, str] = ENDED) -> Uploader:
    uploader = await machine.open(artifacts=False)
    uploader.note_ended(ended, are_written=False)
    uploader.note_ended(ended, are_written=True)
    return uploader


async def published(machine: Machine, ended: dict[str, str] = ENDED) -> Uploader:
    """A run has ended: all files are in storage, and the folder is noted."""
    machine.write("trial/stdout")
    uploader = await opened(machine, ended)
    await uploader.publish(START, 0)
    return uploader


class Killed(BaseException):
    """The process ended here."""


async def killed_before_a_rename(uploader: Uploader) -> None:
    def kill(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", kill)
        patch.setattr(durable, "remove_file", lambda path: None)
        await uploader.publish(START, 0)


async def test_an_ended_trials_folder_is_looked_at_once_and_not_again_in_a_restore(
    machine: Machine, memory: MemoryStore
) -> None:
    with looking(machine) as found:
        uploader = await published(machine)
    assert found
    assert "trial/stdout" in memory.objects
    with looking(machine) as found:
        await uploader.publish(START, 0)
        await (await opened(machine)).publish(START, 0)
    assert found == []


async def test_a_folder_is_not_noted_before_all_its_files_are_written(machine: Machine) -> None:
    machine.write("trial/stdout")
    uploader = await machine.open(artifacts=False)
    uploader.note_ended(ENDED, are_written=False)
    await uploader.publish(START, 0)
    machine.write("trial/stdout", "more")
    machine.done()
    await uploader.publish(START, 0)
    assert "put trial/stdout" in machine.done()


async def test_a_trial_that_runs_again_is_looked_at(machine: Machine) -> None:
    uploader = await published(machine)
    uploader.note_ended({"trial": ""}, are_written=False)
    machine.write("trial/stdout", "more")
    await uploader.publish(START, 0)
    assert "put trial/stdout" in machine.done()
    machine.write("trial/stdout", "even more")
    await (await opened(machine, {"trial": "TERMINATED 2"})).publish(START, 0)
    assert "put trial/stdout" in machine.done()


async def test_what_is_written_while_records_are_sent_is_looked_at_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial ends after the look at its folder."""
    uploader = await opened(machine, {})
    machine.write("trial/stdout")
    put = machine.store.put

    async def put_and_end(key: str, *arguments: Any, **wanted: Any) -> Any:
        done = await put(key, *arguments, **wanted)
        machine.write("trial/stdout", "the last line")
        uploader.note_ended(ENDED, are_written=False)
        uploader.note_ended(ENDED, are_written=True)
        return done

    monkeypatch.setattr(machine.store, "put", put_and_end)
    await uploader.publish(START, 0)
    monkeypatch.undo()
    machine.done()
    await uploader.publish(START, 0)
    assert "put trial/stdout" in machine.done()


async def test_a_folder_with_a_file_that_cannot_be_sent_is_looked_at_again(
    machine: Machine,
) -> None:
    (machine.root / "trial").mkdir()
    os.mkfifo(machine.root / "trial/stdout")
    uploader = await opened(machine)
    await uploader.publish(START, 0)
    (machine.root / "trial/stdout").unlink()
    machine.write("trial/stdout")
    machine.done()
    await uploader.publish(START, 0)
    assert "put trial/stdout" in machine.done()


async def test_what_a_kill_leaves_of_an_index_is_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The projector does not look into the folder of a trial that it has swept."""
    monkeypatch.setattr(settings, "SETTLED_AFTER_S", -1.0)
    uploader = await published(machine, {})
    machine.write("trial/stdout", "more")
    with pytest.raises(Killed):
        await killed_before_a_rename(uploader)
    (left,) = (machine.root / "trial").glob(".tmp-*")
    await (await opened(machine, {})).publish(START, 0)
    assert not left.exists()
    left.touch()
    await (await opened(machine, {})).publish(START, 0)  # which has nothing to write
    assert not left.exists()


async def test_once_another_machine_has_owned_the_storage_every_folder_is_looked_at(
    machine: Machine, memory: MemoryStore, tmp_path: Path
) -> None:
    await published(machine)
    await Machine(tmp_path / "other", memory).open()
    del memory.objects["trial/stdout"]
    await (await opened(machine)).publish(START, 0)
    assert "trial/stdout" in memory.objects


async def test_a_file_that_a_user_adds_later_is_sent_with_the_artifacts(machine: Machine) -> None:
    machine.write("trial/stdout")
    uploader = await machine.open()
    uploader.note_ended(ENDED, are_written=False)
    uploader.note_ended(ENDED, are_written=True)
    await uploader.publish(START, 0)
    machine.write("trial/a late plot")
    machine.done()
    await uploader.send_artifacts(None)
    assert machine.done() == ["put trial/a late plot"]


def noted(root: Path, since: int = 1) -> EndedFolders:
    found = EndedFolders(root)
    found.open(since)
    return found


def whole(root: Path, *folders: str) -> list[str]:
    found = noted(root)
    found.note_ended(dict.fromkeys(folders, "word"))
    return [*filter(found.is_whole, folders)]


def test_a_line_that_was_cut_off_or_damaged_costs_only_itself(tmp_path: Path) -> None:
    noted(tmp_path).note({"a": "word", "b": "word"})
    path = tmp_path / ENDED_NAME
    path.write_bytes(path.read_bytes()[:-3])
    noted(tmp_path).note({"c": "word"})
    assert whole(tmp_path, "a", "b", "c") == ["a", "c"]
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))
    assert whole(tmp_path, "a", "b", "c") == ["c"]


def test_the_file_does_not_grow_with_each_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_STALE_LINES", 5)
    for since in range(1, 20):
        noted(tmp_path, since).note({"a": "word", "b": "word"})
    assert len((tmp_path / ENDED_NAME).read_bytes().splitlines()) < 12
    found = noted(tmp_path, 19)
    found.note_ended({"a": "word"})
    assert found.is_whole("a")
