"""Directories are removed in one place, which removes nothing that is mounted."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from holdfast.trees import delete_tree, try_to_delete

PRODUCT = Path(holdfast.__file__).parent


def test_nothing_else_removes_directories() -> None:
    found = [
        str(Path(folder, name).relative_to(PRODUCT))
        for folder, _, names in os.walk(PRODUCT, followlinks=True)
        for name in names
        if name.endswith(".py") and "rmtree" in Path(folder, name).read_text()
    ]
    assert found == ["trees.py"]


def test_a_directory_a_file_a_link_and_nothing_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    (tmp_path / "closed" / "below").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o500)
    for name in ("link", "file", "closed", "missing"):
        delete_tree(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    try_to_delete(tmp_path / "missing" / "below")
    assert (kept / "below").is_dir()
