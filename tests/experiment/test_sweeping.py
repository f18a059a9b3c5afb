"""What earlier incarnations had half written goes; what lives, and what is the user's, stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.experiment.layout import Layout
from holdfast.experiment.sweeping import sweep_tree

TEMPORARY, REMOVED = ".tmp-0123456789abcdef", ".removed-0123456789abcdef"
FOLDERS = ("", "journal", "trial", "trial/checkpoint_000001")


@pytest.fixture
def tree(tmp_path: Path) -> Layout:
    for folder in FOLDERS[1:]:
        (tmp_path / folder).mkdir()
    return Layout(tmp_path)


def take_over(tree: Layout, *, in_s: float) -> None:
    """The lock is taken so much later than now."""
    tree.lock.touch()
    moment = time.time() + in_s
    os.utime(tree.lock, (moment, moment))


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_dead_process_left_goes(tree: Layout, folder: str) -> None:
    (tree.root / folder / TEMPORARY).write_text("half a row")
    (tree.root / folder / REMOVED).mkdir()
    (tree.root / folder / REMOVED / "weights").touch()
    take_over(tree, in_s=10)
    sweep_tree(tree)
    assert not list(tree.root.rglob(".tmp-*"))
    assert not list(tree.root.rglob(".removed-*"))


def test_what_was_staged_for_a_worker_that_died_goes(tree: Layout) -> None:
    staged = tree.root / "trial" / ".staging" / "0123"
    staged.mkdir(parents=True)
    take_over(tree, in_s=10)
    sweep_tree(tree)
    assert not staged.exists()


def test_what_this_incarnation_writes_stays(tree: Layout) -> None:
    take_over(tree, in_s=-10)
    staged = tree.root / "trial" / ".staging" / "0123"
    staged.mkdir(parents=True)
    (tree.root / TEMPORARY).write_text("it will be renamed")
    sweep_tree(tree)
    assert staged.exists()
    assert (tree.root / TEMPORARY).exists()


def test_users_files_stay_whatever_their_names(tree: Layout) -> None:
    artifacts = tree.root / "trial" / "artifacts"
    artifacts.mkdir()
    kept = [tree.root / "trial" / ".tmp-mine", artifacts / TEMPORARY]
    for path in kept:
        path.touch()
    take_over(tree, in_s=10)
    sweep_tree(tree)
    assert all(path.exists() for path in kept)
