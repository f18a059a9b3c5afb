"""The size of a tree."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.syncer.files.tree import bytes_below, growth_below


def test_files_of_all_folders_count_and_a_link_only_as_itself(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "large").write_bytes(bytes(1_000_000))
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_bytes(bytes(70))
    (tree / "file").write_bytes(bytes(5))
    assert bytes_below(str(tree)) == 75
    assert bytes_below(str(tree / "file")) == 5
    assert bytes_below(str(tree / "none")) == 0
    link = tree / "link"
    link.symlink_to(elsewhere)
    assert bytes_below(str(link)) == link.lstat().st_size
    assert bytes_below(str(tree)) == 75 + link.lstat().st_size


def test_a_hole_that_is_filled_is_growth(tmp_path: Path) -> None:
    """A download in ranges writes its last bytes first."""
    with (tmp_path / "file").open("wb") as file:
        os.pwrite(file.fileno(), b"last", 1 << 20)
        before, size = growth_below(str(tmp_path)), bytes_below(str(tmp_path))
        os.pwrite(file.fileno(), b"first" * 10_000, 0)
    assert growth_below(str(tmp_path)) > before
    assert bytes_below(str(tmp_path)) == size
