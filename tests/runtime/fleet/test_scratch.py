"""The scratch folder of an agent, and what stays of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.runtime.fleet.scratch import keep, scratch_folder
from holdfast.runtime.objects import ForeignFolder


def test_what_is_kept_stays_when_the_agent_and_the_next_one_have_ended(tmp_path: Path) -> None:
    with scratch_folder(str(tmp_path)) as folder:
        Path(folder, "tree").mkdir()
        Path(folder, "tree", "model").write_text("weights")
        Path(folder, "code").write_text("a secret")
        kept = Path(keep(folder, "tree"))
    with scratch_folder(str(tmp_path)):
        assert (kept / "model").read_text() == "weights"
    assert kept == tmp_path / f"holdfast-kept-{os.getuid()}" / Path(folder).name
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["model"]


def test_two_agents_keep_their_trees_next_to_each_other(tmp_path: Path) -> None:
    kept = []
    for name in ("a", "b"):
        with scratch_folder(str(tmp_path)) as folder:
            Path(folder, "tree").mkdir()
            Path(folder, "tree", name).touch()
            kept.append(Path(keep(folder, "tree")))
    assert [sorted(path.name for path in tree.iterdir()) for tree in kept] == [["a"], ["b"]]


def test_nothing_is_kept_where_others_can_write(tmp_path: Path) -> None:
    base = tmp_path / f"holdfast-kept-{os.getuid()}"
    base.mkdir()
    base.chmod(0o777)
    with scratch_folder(str(tmp_path)) as folder:
        Path(folder, "tree").mkdir()
        with pytest.raises(ForeignFolder, match="only this user can write to"):
            keep(folder, "tree")
    assert list(base.iterdir()) == []
