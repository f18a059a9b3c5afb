"""The journal: records are whole or absent, in order, through any number of segments."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tracemalloc
from pathlib import Path

import pytest

from holdfast.syncer.journal import journal as journals
from holdfast.syncer.journal import segment
from holdfast.syncer.journal.journal import (
    MAGIC,
    Journal,
    JournalFull,
    Position,
    read,
    readable_end,
    segment_name,
    segments,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def payloads(folder: Path, start: Position = journals.START) -> list[bytes]:
    return [payload for payload, _ in read(folder, start)]


def test_a_record_is_read_wherever_a_block_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its header begins in one block and ends in the next."""
    journal = Journal(folder)
    known = [b"x" * 50, b"y" * 3]
    journal.append(known)
    journal.close()
    for block in range(9, 120):
        monkeypatch.setattr(segment, "_BLOCK", block)
        assert payloads(folder) == known, block
        assert readable_end(folder) == journal.position, block


@pytest.mark.parametrize("block", [9, 40, 1 << 20])
def test_the_readable_end_is_where_reading_ends_whatever_is_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(segment, "_BLOCK", block)
    journal = Journal(folder)
    journal.append([b"first", b"x" * 60, b"last"])
    journal.close()
    path = folder / segment_name(0)
    whole = path.read_bytes()
    for at in range(len(MAGIC), len(whole)):
        damaged = whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
        for data in (damaged, whole[:at], whole[:at] + bytes(len(whole) - at)):
            path.write_bytes(data)
            *_, (_, end) = [(b"", journals.START), *read(folder)]
            assert readable_end(folder) == end, at


def opened(folder: Path, read_until: Position | None) -> tuple[dict[str, bytes], list[str]]:
    """The files and the cuts after a journal was opened."""
    journal = Journal(folder, read_until=read_until)
    journal.close()
    return (
        {path.name: path.read_bytes() for path in folder.iterdir()},
        list(map(str, journal.cuts)),
    )


def test_a_journal_that_was_just_read_is_cut_as_one_that_is_read_at_its_opening(
    folder: Path, tmp_path: Path
) -> None:
    """Whatever is damaged: each byte of three segments, and each of their ends."""
    journal = Journal(folder)
    for number in range(3):
        journal.append([b"%d" % number, b"x"])
        journal.rotate()
    journal.close()
    for path in [folder / segment_name(number) for number in range(4)]:
        whole = path.read_bytes()
        broken = [whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :] for at, byte in
                  enumerate(whole)]  # fmt: skip
        for at, data in enumerate([*broken, *(whole[:at] for at in range(len(whole)))]):
            path.write_bytes(data)
            found = []
            for name, look in (("read", readable_end), ("unread", lambda _: None)):
                copy = tmp_path / f"{path.stem}-{at}-{name}"
                shutil.copytree(folder, copy)
                found.append(opened(copy, look(copy)))
            assert found[0] == found[1], (path.name, at)
        path.write_bytes(whole)


def test_a_segment_without_a_record_does_not_end_the_reading(folder: Path) -> None:
    journal = Journal(folder)
    journal.append([b"before"])
    journal.close()
    (folder / "000001.log").write_bytes(MAGIC)
    (folder / "000002.log").write_bytes(MAGIC)
    journal = Journal(folder)
    journal.append([b"after"])
    journal.close()
    assert payloads(folder) == [b"before", b"after"]
    assert payloads(folder, Position(1, 0)) == [b"after"]


@pytest.mark.parametrize("torn", range(1, 12))
def test_a_torn_tail_is_cut_off_and_kept_aside_when_it_is_next_opened(
    folder: Path, torn: int
) -> None:
    journal = Journal(folder)
    journal.append([b"whole", b"last"])
    journal.close()
    segment = folder / "000000.log"
    os.truncate(segment, segment.stat().st_size - torn)
    assert payloads(folder) == [b"whole"]
    journal = Journal(folder)
    (cut,) = journal.cuts
    assert cut.size_bytes == 12 - torn
    assert (folder / cut.kept_as).stat().st_size == cut.size_bytes
    journal.append([b"next"])
    journal.close()
    assert payloads(folder) == [b"whole", b"next"]


def test_what_was_put_aside_at_one_place_is_not_overwritten_by_a_later_cut(folder: Path) -> None:
    Journal(folder).close()
    for torn in (b"first", b"second"):
        with open(folder / "000000.log", "ab") as file:
            file.write(torn)
        Journal(folder).close()
    assert {path.read_bytes() for path in folder.glob("*.cut-*")} == {b"first", b"second"}


def test_every_flipped_bit_is_noticed(folder: Path) -> None:
    journal = Journal(folder)
    journal.append([b"first", b"second", b"third"])
    journal.close()
    segment = folder / "000000.log"
    good = segment.read_bytes()
    for at in range(len(MAGIC) + 8 + 5, len(MAGIC) + 2 * 8 + 5 + 6):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            segment.write_bytes(bad)
            assert payloads(folder) == [b"first"]


def test_on_macos_a_segment_is_forced_through_the_cache_of_the_drive(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder)
    journal.append([b"one"])
    journal.rotate()
    forced: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, command: forced.append((fd, command)))
    unsynced = journal.unsynced()
    sealed = list(unsynced.sealed)
    unsynced.force()
    assert forced == [(fd, 51) for _, fd in sealed]
    monkeypatch.undo()
    journal.close()


def test_what_follows_a_hole_is_not_read(folder: Path) -> None:
    journal = Journal(folder)
    for text in (b"a", b"b", b"c"):
        journal.append([text])
        journal.rotate()
    journal.close()
    (folder / "000001.log").unlink()
    assert payloads(folder) == [b"a"]
    journal = Journal(folder)
    assert sorted(cut.segment for cut in journal.cuts) == ["000002.log", "000003.log"]
    journal.append([b"d"])
    journal.close()
    assert payloads(folder) == [b"a", b"d"]


class FullDisk:
    """`os.write` if only `left` more bytes fit."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, fd: int, data: bytes) -> int:
        if self.left == 0:
            raise OSError(28, "No space left on device")
        part = data[: self.left]
        self.left -= len(part)
        return _write(fd, part)


_write = os.write


def test_a_record_that_does_not_fit_leaves_no_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder)
    journal.append([b"kept"])
    end = journal.position
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(10))
        with pytest.raises(JournalFull, match=r"No space left on device.*Free some disk space"):
            journal.append([b"a record", b"another one"])
    assert journal.position == end
    journal.append([b"after space was made"])
    journal.close()
    assert payloads(folder) == [b"kept", b"after space was made"]


def test_a_segment_that_cannot_be_begun_leaves_the_one_before_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder)
    journal.append([b"kept"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(0))
        with pytest.raises(JournalFull, match="begin a segment"):
            journal.rotate()
    assert segments(folder) == [0]
    journal.append([b"more"])
    assert journal.rotate() == 0
    journal.close()
    assert payloads(folder) == [b"kept", b"more"]


def test_a_sync_forces_the_segment_that_was_written_to_and_not_the_one_begun_since(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    journal = Journal(folder)
    journal.append([b"one"])
    first = journal.unsynced()
    journal.append([b"two"])
    journal.rotate()
    monkeypatch.setattr(journals, "fdatasync_file", forced.append)
    assert first.force() == first.position
    assert os.path.samestat(os.fstat(forced[0]), (folder / "000000.log").stat())
    journal.close()


def test_zeros_at_the_end_are_no_records(folder: Path) -> None:
    """Data that was not on the disk at a power cut can come back as zeros."""
    journal = Journal(folder)
    journal.append([b"kept"])
    journal.close()
    with (folder / "000000.log").open("ab") as file:
        file.write(bytes(4096))
    assert payloads(folder) == [b"kept"]
    again = Journal(folder)
    assert [cut.size_bytes for cut in again.cuts] == [4096]
    again.append([b"more"])
    again.close()
    assert payloads(folder) == [b"kept", b"more"]


def test_a_damage_in_what_an_earlier_experiment_wrote_takes_nothing_from_this_one(
    folder: Path,
) -> None:
    earlier = Journal(folder)
    earlier.append([b"theirs", b"damaged", b"lost"])
    earlier.close()
    journal = Journal(folder, fresh=True)
    journal.append([b"ours"])
    journal.close()
    path = folder / "000000.log"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"damaged", b"damagee"))
    again = Journal(folder, begins=1)
    again.append([b"more"])
    again.close()
    assert payloads(folder) == [b"theirs", b"ours", b"more"]
    assert [cut.segment for cut in again.cuts] == ["000000.log"]


def test_a_segment_ends_by_its_size_and_nothing_of_it_is_lost(folder: Path) -> None:
    journal = Journal(folder, segment_bytes=1_000)
    for number in range(50):
        journal.append([b"%04d" % number + bytes(96)])
    journal.close()
    assert len(segments(folder)) == 5
    assert [int(payload[:4]) for payload, _ in journals.read(folder)] == [*range(50)]
    sizes = [
        (folder / journals.segment_name(number)).stat().st_size for number in segments(folder)
    ]
    assert max(sizes) < 1_200


def test_opening_and_reading_take_a_block_at_a_time_into_memory(folder: Path) -> None:
    journal = Journal(folder)
    for _ in range(14):
        journal.append([bytes([7]) * 1_000] * 1_000)
    journal.close()
    assert segments(folder) == [0]
    tracemalloc.start()
    try:
        assert sum(1 for _ in journals.read(folder)) == 14_000
        Journal(folder).close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 << 20
