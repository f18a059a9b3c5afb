"""What of an experiment's journal cannot be read, for whoever reads the experiment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.experiment.folder.layout import JOURNAL, Layout
from holdfast.experiment.progress.wording import size
from holdfast.experiment.records.segments import chapters, look
from holdfast.syncer.journal.journal import Position, readable_end, segment_name, segments
from holdfast.syncer.journal.stretches import segment_size
from holdfast.syncer.uploader.lock_holder import current_holder

# A journal of so many bytes has some 150,000 rows, and is read in a tenth of a second. Of a larger
# one only what follows the snapshot is read, and the doctor looks at the rest.
_MOST_BYTES = 32 << 20


def damages(layout: Layout, begins: int, end: Position | None = None) -> Iterator[str]:
    """A line for each way in which the journal of the experiment that begins in segment `begins`
    is damaged.

    `end` is how far it was read, from a snapshot or from its beginning. While a process holds the
    experiment's lock, its last record may be being written and is not mentioned. Raises OSError.
    """
    journal = layout.journal
    if end is None or not _is_read_to_its_end(journal, end):
        yield from _left_out(layout, begins)
    elif _bytes_before(journal, begins, end) <= _MOST_BYTES:
        sound = readable_end(journal, Position(begins))
        if sound < end:
            yield (
                f"{JOURNAL}/{segment_name(sound.segment)} is damaged at offset {sound.offset}. "
                f"What is shown comes from a newer snapshot; a restore may not be able to use "
                f"it: holdfast doctor says more"
            )


def _is_read_to_its_end(journal: Path, end: Position) -> bool:
    newest = segments(journal)[-1]
    return end.segment == newest and end.offset >= segment_size(journal, newest)


def _left_out(layout: Layout, begins: int) -> Iterator[str]:
    for chapter in chapters(look(layout.journal)):
        damage = chapter.damage
        if damage is None or chapter.segments[0].number != begins:
            continue
        if not damage.is_torn:
            cannot = "cannot be used, since a segment is missing before it"
            yield (
                f"{JOURNAL}/{damage.at.name}: what follows offset {damage.offset} "
                f"{cannot if damage.is_gap else 'cannot be read'} ({size(damage.size_bytes)}) and "
                f"is left out here: holdfast doctor says more"
            )
        elif not current_holder(layout.lock):
            yield (
                f"{JOURNAL}/{damage.at.name} ends inside a record, at offset {damage.offset} "
                f"({size(damage.size_bytes)} is left out here). A crash in the middle of a write "
                f"leaves it so, and nothing acknowledged is lost. If nothing crashed, the file "
                f"was cut off and what followed is lost"
            )


def _bytes_before(journal: Path, begins: int, end: Position) -> int:
    between = [number for number in segments(journal) if begins <= number <= end.segment]
    return sum(segment_size(journal, number) for number in between)
