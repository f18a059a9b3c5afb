"""Making a damaged journal readable to its end: what cannot be used is put aside, not removed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from holdfast.experiment.doctor.findings import Deed
from holdfast.experiment.folder.layout import JOURNAL
from holdfast.experiment.records.segments import Chapter
from holdfast.syncer.files.durable import fsync_dir, fsync_path, write_atomic
from holdfast.syncer.files.regular import open_regular, read_regular
from holdfast.syncer.journal.journal import segment_name


def seal(journal: Path, parts: Sequence[Chapter]) -> Iterator[Deed]:
    """Cut each experiment's segments at their first damage; that of one takes nothing from others.

    The bytes are durable under their new name before they go from the old one, so that a crash
    in between leaves both. Raises OSError.
    """
    for chapter in parts:
        damage = chapter.damage
        if damage is None:
            continue
        for later in reversed(damage.later):
            yield _put_aside(journal, later.number, 0)
        yield _put_aside(journal, damage.at.number, damage.offset)


def _put_aside(journal: Path, number: int, offset: int) -> Deed:
    path = journal / segment_name(number)
    data = read_regular(path)[offset:]
    aside = name_aside(path, offset, data)
    if not aside.exists():
        write_atomic(aside, data)
    if offset:
        os.truncate(path, offset)
        fsync_path(path)
    else:
        path.unlink()
    fsync_dir(journal)
    return Deed(
        what=f"put {len(data)} bytes from offset {offset} on aside, as {aside.name}: they are no "
        f"records that can be used",
        where=f"{JOURNAL}/{path.name}",
    )


def name_aside(path: Path, offset: int, data: bytes) -> Path:
    """What a sealing that died had put aside already needs no second copy."""
    for number in count(1):
        ending = f"-{number}" if number > 1 else ""
        aside = path.with_name(f"{path.stem}.cut-{offset}{ending}")
        if not os.path.lexists(aside) or _holds(aside, data):
            return aside
    raise AssertionError("count has no end")


def _holds(path: Path, data: bytes) -> bool:
    with open_regular(path) as file:
        return file.read(len(data) + 1) == data
