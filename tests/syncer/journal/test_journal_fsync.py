"""A failed fsync: its records are written again, elsewhere, and read once."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.files.durable import fsync_dir
from holdfast.syncer.journal import journal as journals
from holdfast.syncer.journal import segment
from holdfast.syncer.journal.journal import (
    Journal,
    JournalFull,
    JournalGone,
    Position,
    read,
    segments,
)
from holdfast.syncer.journal.segment import NewerFormat


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let this many fsyncs of an open segment fail, or of sealed ones, or of the folder."""

    def begin(
        times: int = 1, file: bool = True, sealed: bool = False, directory: bool = False
    ) -> None:
        left = [times]

        def once(real: Callable[[Any], None]) -> Callable[[Any], None]:
            def forced(what: Any) -> None:
                if left[0]:
                    left[0] -= 1
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                real(what)

            return forced

        if file:
            monkeypatch.setattr(journals, "fdatasync_file", once(os.fdatasync))
        if sealed:
            monkeypatch.setattr(journals, "fsync_file", once(os.fsync))
        if directory:
            monkeypatch.setattr(journals, "fsync_dir", once(fsync_dir))

    return begin


def payloads(folder: Path, start: Position = journals.START) -> list[bytes]:
    return [payload for payload, _ in read(folder, start)]


def numbered(*numbers: int) -> list[bytes]:
    return [b"record %d" % number for number in numbers]


def begun(folder: Path) -> Journal:
    """Two records are on the disk, two are not."""
    journal = Journal(folder)
    journal.append(numbered(0, 1))
    journal.sync()
    journal.append(numbered(2, 3))
    return journal


def test_what_could_not_be_forced_is_written_to_another_segment_and_read_once(
    folder: Path, fails: Callable[..., None]
) -> None:
    journal = begun(folder)
    before = journal.position
    fails()
    journal.sync()
    assert segments(folder) == [0, 1]
    assert journal.position > before
    assert (folder / "000001.log").read_bytes().count(b"record") == 2
    journal.append(numbered(4))
    journal.close()
    assert payloads(folder) == numbered(0, 1, 2, 3, 4)


def test_the_old_segment_may_have_lost_them_or_have_any_part_of_them(
    folder: Path, fails: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_cut_off", lambda *_: None)
    journal = begun(folder)
    durable = next(at for payload, at in read(folder) if payload == b"record 1").offset
    fails()
    journal.sync()
    journal.close()
    old = folder / "000000.log"
    whole = old.read_bytes()
    for size, zeroed in product(range(durable, len(whole) + 1), (False, True)):
        padding = bytes(len(whole) - size) if zeroed else b""
        old.write_bytes(whole[:size] + padding)
        assert payloads(folder) == numbered(0, 1, 2, 3)
        again = Journal(folder)
        assert again.cuts == []
        again.close()
        assert payloads(folder) == numbered(0, 1, 2, 3)


def test_a_reader_continues_in_the_new_segment_wherever_it_was(
    folder: Path, fails: Callable[..., None]
) -> None:
    journal = begun(folder)
    places = list(read(folder))
    fails()
    journal.sync()
    journal.append(numbered(4))
    for number, (_, at) in enumerate(places):
        assert payloads(folder, at) == numbered(*range(number + 1, 5))
    assert payloads(folder, Position(0)) == numbered(*range(5))
    upto = [p for p, _ in read(folder, places[2][1], journal.position)]
    assert upto == numbered(3, 4)
    journal.close()


def test_a_sealed_segment_whose_close_fails_is_not_closed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may belong to another file by then, and first to the segment that is begun."""
    journal = begun(folder)
    sealed = journal.unsynced().current
    journal.rotate()
    journal.append(numbered(4))
    close, closed = os.close, list[int]()

    def refused(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)
        if closed == [sealed]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", refused)
        journal.sync()
    assert sealed in closed
    journal.append(numbered(5))
    journal.close()
    assert payloads(folder) == numbered(*range(6))


def test_sealed_segments_that_could_not_be_forced_are_written_again_too(
    folder: Path, fails: Callable[..., None]
) -> None:
    journal = begun(folder)
    journal.rotate()
    journal.append(numbered(4, 5))
    journal.rotate()
    journal.append(numbered(6))
    places = list(read(folder))
    fails(file=False, sealed=True)
    journal.sync()
    assert payloads(folder) == numbered(*range(7))
    for number, (_, at) in enumerate(places):
        assert payloads(folder, at) == numbered(*range(number + 1, 7))
    journal.close()
    again = Journal(folder)
    assert again.cuts == []
    again.append(numbered(7))
    again.close()
    assert payloads(folder) == numbered(*range(8))


def test_what_stands_in_a_folder_that_could_not_be_forced_is_written_again_too(
    folder: Path, fails: Callable[..., None]
) -> None:
    journal = begun(folder)
    journal.rotate()
    journal.append(numbered(4))
    fails(file=False, directory=True)
    journal.sync()
    assert segments(folder) == [0, 1, 2]
    assert (folder / "000002.log").read_bytes().count(b"record") == 3
    journal.close()
    assert payloads(folder) == numbered(0, 1, 2, 3, 4)


def test_it_may_happen_again_and_again(folder: Path, fails: Callable[..., None]) -> None:
    journal = begun(folder)
    places = list(read(folder))
    for number in (4, 5, 6):
        fails()
        journal.sync()
        journal.append(numbered(number))
    journal.close()
    assert payloads(folder) == numbered(*range(7))
    assert payloads(folder, places[2][1]) == numbered(*range(3, 7))


def test_what_is_appended_while_the_disk_refuses_is_in_the_new_segment(
    folder: Path, fails: Callable[..., None]
) -> None:
    journal = begun(folder)
    unsynced = journal.unsynced()
    fails()
    with pytest.raises(OSError, match="Input/output"):
        unsynced.force()
    journal.append(numbered(4))
    journal.rotate()
    journal.append(numbered(5))
    journal.write_again(unsynced)
    journal.forced(journal.unsynced().force())
    journal.close()
    assert payloads(folder) == numbered(*range(6))


def test_nothing_is_lost_by_a_death_before_the_new_segment_is_on_the_disk(
    folder: Path, fails: Callable[..., None], tmp_path: Path
) -> None:
    """A crash loses nothing; the part of the new segment that a power cut leaves counts, or does
    not."""
    journal = begun(folder)
    unsynced = journal.unsynced()
    fails()
    with pytest.raises(OSError, match="Input/output"):
        unsynced.force()
    journal.write_again(unsynced)
    assert payloads(folder) == numbered(0, 1, 2, 3)
    new = (folder / "000001.log").read_bytes()
    for size in range(len(new) + 1):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        (copy / "000001.log").write_bytes(new[:size])
        again = Journal(copy)
        again.append(numbered(9))
        again.close()
        found = payloads(copy)
        assert found[:2] == numbered(0, 1)
        assert found[-1] == b"record 9"
        assert found[2:-1] == numbered(2, 3)[: len(found) - 3]
        shutil.rmtree(copy)
    journal.close()


def test_a_disk_that_refuses_twice_ends_it(folder: Path, fails: Callable[..., None]) -> None:
    journal = begun(folder)
    fails(times=2)
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    journal.abandon()


@pytest.mark.parametrize("first", ["file", "directory"])
def test_a_folder_that_cannot_be_forced_with_the_new_segment_ends_it(
    folder: Path, fails: Callable[..., None], first: str
) -> None:
    journal = begun(folder)
    if first == "directory":
        journal.rotate()
    fails(times=2 if first == "directory" else 1, file=False, directory=True)
    if first == "file":
        fails(times=1)
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    journal.abandon()


@pytest.mark.parametrize(("is_begun", "forced_before"), [(True, 0), (False, 0), (False, 1)])
def test_a_journal_whose_folder_cannot_be_forced_is_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool, forced_before: int
) -> None:
    """Once for existing records, and once more for the name of a new segment."""
    if is_begun:
        begun(folder).close()
    forced: list[object] = []

    def force(path: object) -> None:
        forced.append(path)
        if len(forced) > forced_before:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(journals, "fsync_dir", force)
    with pytest.raises(OSError, match="Input/output"):
        Journal(folder)
    assert len(forced) == forced_before + 1


def test_what_is_too_much_for_the_memory_cannot_be_written_again(
    folder: Path, fails: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_LARGEST_UNFORCED", 100)
    journal = begun(folder)
    journal.append(numbered(*range(4, 20)))
    fails()
    with pytest.raises(JournalFull, match="waited for an fsync"):
        journal.sync()
    journal.sync()
    journal.append(numbered(20))
    fails()
    journal.sync()
    journal.close()
    assert payloads(folder) == numbered(*range(21))


@pytest.mark.parametrize("what", ["segment", "journal", "renamed", "replaced", "recreated"])
def test_a_segment_that_is_not_under_its_name_any_more_is_noticed_by_the_next_sync(
    folder: Path, what: str
) -> None:
    journal = begun(folder)
    path = folder / "000000.log"
    if what == "segment":
        path.unlink()
    elif what == "replaced":
        other = folder / "other"
        shutil.copy(path, other)
        other.replace(path)
    elif what == "renamed":
        folder.rename(folder.with_name("elsewhere"))
    else:
        shutil.rmtree(folder)
        if what == "recreated":
            folder.mkdir()
            path.write_bytes(b"")
    with pytest.raises(JournalGone, match=r"journal/000000\.log: .* while the run wrote to it"):
        journal.sync()
    with pytest.raises(JournalGone):
        journal.close()


def test_a_newer_format_is_refused_and_left_as_it_is(folder: Path) -> None:
    journal = begun(folder)
    journal.close()
    newer = b"HFJRNL\x00\x07 whatever"
    (folder / "000001.log").write_bytes(newer)
    with pytest.raises(NewerFormat, match="journal format 7"):
        payloads(folder)
    with pytest.raises(NewerFormat, match="journal format 7"):
        Journal(folder)
    assert (folder / "000001.log").read_bytes() == newer
    assert segments(folder) == [0, 1]


@pytest.mark.parametrize("rows", [[["a", 8, 3]], [[0, 8]], 7, [[5, 8, 1]], [[0, -1, 1]], []])
def test_a_table_of_nonsense_takes_the_place_of_nothing(folder: Path, rows: object) -> None:
    import msgpack

    journal = begun(folder)
    journal.close()
    table = segment.framed(msgpack.packb({"takes_over": rows}))
    (folder / "000001.log").write_bytes(b"HFJRNL\x00\x02" + table + segment.framed(b"record 4"))
    assert payloads(folder) == numbered(0, 1, 2, 3, 4)
