"""Storage in a directory with hostile content: nothing in it leads outside."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.syncer.errors import NotStored, StorageError, StorageRefused, StorageUnavailable
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.store import ObjectInfo

pytestmark = pytest.mark.anyio

OPERATIONS: dict[str, Callable[[LocalStore, Path], Awaitable[object]]] = {
    "put": lambda store, here: store.put("trial/result.json", b"ours"),
    "put of a new one": lambda store, here: store.put("trial/new", b"ours", create_only=True),
    "copy from": lambda store, here: store.copy(
        ObjectInfo(key="trial/result.json", size=6), "new"
    ),
    "copy to": lambda store, here: store.copy(ObjectInfo(key="whole", size=5), "trial/new"),
    "get": lambda store, here: store.get("trial/result.json", here),
    "read": lambda store, here: store.read("trial/result.json"),
    "head": lambda store, here: store.head("trial/result.json"),
    "list": lambda store, here: store.list("trial"),
    "delete": lambda store, here: store.delete(["trial/result.json", "trial/empty/gone"]),
}


def contents(folder: Path) -> dict[str, bytes | None]:
    found = folder.rglob("*")
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_folder_that_is_a_link_is_neither_read_nor_written(
    tmp_path: Path, operation: str
) -> None:
    victim, root = tmp_path / "victim", tmp_path / "root"
    (victim / "empty").mkdir(parents=True)
    (victim / "result.json").write_bytes(b"theirs")
    root.mkdir()
    (root / "whole").write_bytes(b"whole")
    (root / "trial").symlink_to(victim)
    before = contents(victim)
    with pytest.raises(StorageError, match="a symbolic link, which is not followed"):
        await OPERATIONS[operation](LocalStore(root), tmp_path / "here")
    assert contents(victim) == before
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("operation", ["get", "read", "copy from"])
@pytest.mark.parametrize("what", ["FIFO", "link"])
async def test_what_is_not_a_file_is_refused_without_waiting(
    tmp_path: Path, operation: str, what: str
) -> None:
    root = tmp_path / "root"
    (root / "trial").mkdir(parents=True)
    if what == "FIFO":
        os.mkfifo(root / "trial" / "result.json")
    else:
        (tmp_path / "secret").write_bytes(b"theirs")
        (root / "trial" / "result.json").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="holdfast reads and writes regular files only"):
        await OPERATIONS[operation](LocalStore(root), tmp_path / "here")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_folder_in_place_of_an_object_is_none_and_refuses_one(
    tmp_path: Path, operation: str
) -> None:
    """Returns without waiting until it is gone."""
    root = tmp_path / "root"
    for name in ("result.json", "new"):
        (root / "trial" / name / "inside").mkdir(parents=True)
    (root / "whole").write_bytes(b"whole")
    perform = OPERATIONS[operation](LocalStore(root), tmp_path / "here")
    if operation in ("head", "list"):
        assert not await perform
    else:
        is_read = operation in ("get", "read", "copy from")
        with pytest.raises(NotStored if is_read else StorageRefused):
            await perform
    assert (root / "trial" / "result.json" / "inside").is_dir()


@pytest.mark.parametrize("operation", ["put", "put of a new one", "copy to"])
async def test_a_folder_that_is_not_forced_to_disk_is_an_error_of_the_put(
    tmp_path: Path, refused_folders: list[str], operation: str
) -> None:
    root = tmp_path / "root"
    (root / "trial").mkdir(parents=True)
    (root / "whole").write_bytes(b"whole")
    refused_folders.append(f"{root}/trial")
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        await OPERATIONS[operation](LocalStore(root), tmp_path / "here")
    assert not list(root.rglob(".tmp-*"))


async def test_a_store_that_is_a_link_itself_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    await LocalStore(tmp_path / "root").put("trial/key", b"data")
    assert (tmp_path / "disk" / "trial" / "key").read_bytes() == b"data"
