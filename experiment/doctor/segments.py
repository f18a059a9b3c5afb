"""What is wrong with the segments of a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.experiment.doctor.findings import Finding, Remedy, Severity
from holdfast.experiment.folder.layout import JOURNAL
from holdfast.experiment.progress.wording import size
from holdfast.experiment.records.segments import Chapter, JournalDamage


def judge(parts: Sequence[Chapter], *, in_use: bool) -> Iterator[Finding]:
    """What is wrong with the journal. `in_use`: its last record may be being written just now."""
    if not any(chapter.begins for chapter in parts):
        yield _unreadable(any(s.is_foreign for chapter in parts for s in chapter.segments))
        return
    for chapter in parts:
        damage = chapter.damage
        if damage is None or (in_use and chapter is parts[-1] and damage.is_torn):
            continue
        yield _told(damage, is_newest=chapter is parts[-1])


def _unreadable(is_foreign: bool) -> Finding:
    if is_foreign:
        return Finding(
            kind="journal-foreign",
            severity=Severity.ERROR,
            where=JOURNAL,
            what="it begins with a record of another version of holdfast",
            advice="Use the version that wrote it",
        )
    return Finding(
        kind="journal-unreadable",
        severity=Severity.ERROR,
        where=JOURNAL,
        what="no segment of it has a readable beginning: what the experiment was is not known",
        advice="Where the experiment was persisted elsewhere, doctor repair --storage URI takes "
        "what is damaged here from there; else put a copy of the journal in its place",
    )


def _told(damage: JournalDamage, *, is_newest: bool) -> Finding:
    of_earlier = "" if is_newest else " (of an earlier experiment in this directory)"
    where = f"{JOURNAL}/{damage.at.name}"
    later = f", and {len(damage.later)} segments behind it" if damage.later else ""
    if damage.is_torn:
        return Finding(
            kind="journal-torn",
            severity=Severity.WARNING,
            where=where,
            what=f"its last record is cut off at offset {damage.offset}, as a crash in the middle "
            f"of a write leaves it: nothing that was acknowledged is behind it{of_earlier}",
            advice="If nothing crashed, the file was cut off, and what followed is lost unless "
            "remote storage has a copy",
            remedy=Remedy.REPAIR,
        )
    missing = "a segment before it is missing" if damage.is_gap else "no valid records"
    start = "it" if damage.offset == 0 else f"what follows offset {damage.offset}"
    return Finding(
        kind="journal-gap" if damage.is_gap else "journal-damaged",
        severity=Severity.ERROR,
        where=where,
        what=f"{start} cannot be used: {missing} ({size(damage.size_bytes)}{later}){of_earlier}",
        advice="What the records behind it said is lost, unless remote storage has a copy; repair "
        "puts the bytes aside, and what stands before them is used",
        remedy=Remedy.REPAIR,
    )
