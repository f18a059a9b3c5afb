"""Merging the parts of several ranks into one checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.syncer.checkpoint.staging import facts_of, merge_parts, owners_of
from holdfast.syncer.errors import AlreadyStored, UnusableFile


def part(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_files_of_all_ranks_are_in_it_and_parts_are_left_empty(tmp_path: Path) -> None:
    parts = {
        0: part(tmp_path / "0", model_0="a", shards__0="bb"),
        2: part(tmp_path / "2", model_2="c", shards__2="dd", own__deep__file="e"),
    }
    merged = merge_parts(parts, tmp_path / "target")
    assert content(tmp_path / "target") == {
        "model_0": "a",
        "shards/0": "bb",
        "model_2": "c",
        "shards/2": "dd",
        "own/deep/file": "e",
    }
    assert (merged.staged.files, merged.staged.bytes) == (5, 7)
    assert merged.clashes == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "target"]
    assert content(tmp_path / "2") == {}
    assert merged.emptied == [tmp_path / "2"]


def test_of_files_with_one_name_the_last_ranks_stays_and_all_ranks_are_named(
    tmp_path: Path,
) -> None:
    parts = {rank: part(tmp_path / str(rank), same=f"of {rank}") for rank in (0, 1, 3)}
    merged = merge_parts(parts, tmp_path / "target")
    assert content(tmp_path / "target") == {"same": "of 3"}
    assert merged.clashes == {"same": [0, 1, 3]}
    assert merged.staged.files == 1


def test_a_single_part_is_renamed(tmp_path: Path) -> None:
    only = part(tmp_path / "1", model="a")
    inode = (only / "model").stat().st_ino
    merge_parts({1: only}, tmp_path / "target")
    assert (tmp_path / "target" / "model").stat().st_ino == inode


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_file_of_one_rank_that_is_a_folder_of_another_is_refused(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    made = [part(tmp_path / "0", model="file"), part(tmp_path / "1", model__weights="folder")]
    with pytest.raises(UnusableFile, match="one rank saved a file with this name"):
        merge_parts({rank: made[rank] for rank in order}, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    part(tmp_path / "target", old="old")
    with pytest.raises(AlreadyStored):
        merge_parts({0: part(tmp_path / "0", new="new")}, tmp_path / "target")
    assert content(tmp_path / "target") == {"old": "old"}


def test_files_that_are_alike_clash_with_no_one(tmp_path: Path) -> None:
    parts = {rank: part(tmp_path / str(rank), same="alike", own=f"{rank}") for rank in (0, 1)}
    assert merge_parts(parts, tmp_path / "target").clashes == {"own": [0, 1]}


def test_files_of_one_name_may_be_refused_and_nothing_is_moved(tmp_path: Path) -> None:
    parts = {rank: part(tmp_path / str(rank), same=f"of {rank}") for rank in (0, 2)}
    with pytest.raises(UnusableFile, match="ranks 0 and 2 each saved a file with this name"):
        merge_parts(parts, tmp_path / "target", refuse_clashes=True)
    assert not (tmp_path / "target").exists()
    assert content(tmp_path / "2") == {"same": "of 2"}


def test_the_files_of_a_share_are_named_with_the_last_rank_that_has_them(tmp_path: Path) -> None:
    parts = {rank: tmp_path / str(rank) for rank in (0, 2)}
    for rank, part in parts.items():
        (part / "inside").mkdir(parents=True)
        (part / "inside" / "common").write_text("common")
        (part / f"own-{rank}").write_text(str(rank))
    assert owners_of(parts) == {"inside/common": 2, "own-0": 0, "own-2": 2}


def test_a_fingerprint_sees_the_beginning_and_the_end_of_a_file(tmp_path: Path) -> None:
    path, seen = tmp_path / "file", set()
    for data in (b"", b"a", b"b", b"a" + bytes(1 << 20), bytes(1 << 20) + b"a"):
        path.write_bytes(data)
        size, fingerprint = facts_of(path, looks=True)
        assert size == len(data)
        seen.add(fingerprint)
        assert facts_of(path, looks=False) == (len(data), "")
    assert len(seen) == 5
