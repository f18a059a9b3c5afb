"""Whether results can be kept is tried before trial 1, by as many at once as there are."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.experiment.layout import Layout
from holdfast.experiment.place import Place, check_storage
from holdfast.syncer.errors import StorageError
from holdfast.syncer.location import Location


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(
        layout=Layout(tmp_path / "here"),
        location=Location.resolve(tmp_path / "there", None, {}),
        remote=Location.resolve(tmp_path / "there", None, {}),
    )


def test_two_threads_may_try_one_storage_at_once(place: Place) -> None:
    def try_it(_: int) -> None:
        for _ in range(150):
            check_storage(place)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(try_it, range(2)))
    assert os.listdir(place.layout.root) == []
    assert place.remote is not None
    assert os.listdir(place.remote.path) == []


def test_a_local_tree_that_cannot_be_is_told(place: Place) -> None:
    place.layout.root.write_bytes(b"a file")
    with pytest.raises(StorageError, match="File exists") as caught:
        check_storage(place)
    assert caught.value.where == str(place.layout.root)
