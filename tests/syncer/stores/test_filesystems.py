"""Filesystems whose empty folders can be removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest

from holdfast.syncer.stores.filesystems import remover_of_empty, renames_cheaply


def of_fsspec(filesystem: Any) -> Any:
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))


def bucket() -> Any:
    return pyarrow.fs.S3FileSystem(anonymous=True, region="us-east-1")


def s3fs_bucket() -> Any:
    import s3fs

    return of_fsspec(s3fs.S3FileSystem(anon=True, skip_instance_cache=True))


def arrow_in_fsspec() -> Any:
    """A filesystem whose `rmdir` removes the folder's content, too."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    return of_fsspec(ArrowFSWrapper(pyarrow.fs.LocalFileSystem(), skip_instance_cache=True))


@pytest.mark.parametrize(
    "make", [bucket, s3fs_bucket, arrow_in_fsspec, lambda: of_fsspec(fsspec.filesystem("memory"))]
)
def test_where_folders_are_names_or_go_with_what_is_in_them_none_is_removed(
    make: Callable[[], Any],
) -> None:
    assert remover_of_empty(make()) is None


@pytest.mark.parametrize("make", [bucket, s3fs_bucket])
def test_a_bucket_has_no_cheap_renames(make: Callable[[], Any]) -> None:
    assert not renames_cheaply(make())


@pytest.mark.parametrize(
    "make", [pyarrow.fs.LocalFileSystem, lambda: of_fsspec(fsspec.filesystem("file"))]
)
def test_a_folder_of_a_disk_is_removed_only_if_it_is_empty(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    remove = remover_of_empty(make())
    assert remove is not None
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x")
    with pytest.raises(OSError, match="not empty"):
        remove(str(tmp_path / "folder"))
    (tmp_path / "folder" / "file").unlink()
    remove(str(tmp_path / "folder"))
    assert not (tmp_path / "folder").exists()
    assert renames_cheaply(make())
