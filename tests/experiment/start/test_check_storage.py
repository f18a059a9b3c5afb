"""The test of storage before trial 1, by several runs at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.place import ExperimentPlace, check_local, check_remote
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location


@pytest.fixture
def place(tmp_path: Path) -> ExperimentPlace:
    return ExperimentPlace(
        name="e",
        layout=Layout(tmp_path / "here"),
        location=Location.resolve(tmp_path / "there", None, {}),
        remote=Location.resolve(tmp_path / "there", None, {}),
    )


def test_two_trees_may_try_one_storage_at_once(place: ExperimentPlace, tmp_path: Path) -> None:
    def try_it(name: str) -> None:
        tree = replace(place, layout=Layout(tmp_path / name))
        for _ in range(150):
            check_local(tree)
            check_remote(tree)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(try_it, ["here", "elsewhere"]))
    assert os.listdir(place.layout.root) == []
    assert place.remote is not None
    assert os.listdir(place.remote.path) == []


def test_what_a_run_of_the_same_tree_left_when_it_was_killed_goes(place: ExperimentPlace) -> None:
    assert place.remote is not None
    probes: list[Path] = []

    class Killed(BaseException):
        """Replaces SIGKILL, between the write and the read."""

    def die(store: LocalStore, key: str) -> bytes:
        probes.append(store.root / key)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "_read", die)
        with pytest.raises(Killed):
            check_remote(place)
    (probes[0].parent / ".tmp-0123456789abcdef").touch()
    check_remote(replace(place, layout=Layout(place.layout.root.with_name("elsewhere"))))
    assert probes[0].exists()
    check_remote(place)
    assert os.listdir(place.remote.path) == []


def test_a_local_tree_that_cannot_be_is_reported(place: ExperimentPlace) -> None:
    place.layout.root.write_bytes(b"a file")
    with pytest.raises(StorageError, match="File exists") as caught:
        check_local(place)
    assert caught.value.where == str(place.layout.root)
