"""What a snapshot notes about the files of trials that have not ended.

With it, the next projector continues these files. Without it, it would write them anew from all
records of the experiment, a million for example.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

from holdfast.dataclass import dataclass
from holdfast.schema import Count, Sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The first `size` bytes of a file, and their CRC-32."""

    size: Count = 0
    crc32: Count = 0

    @classmethod
    def of(cls, data: bytes) -> Written:
        return cls(size=len(data), crc32=zlib.crc32(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The sizes of the files after the row of a checkpoint of this iteration was written."""

    iteration: Count = 0
    results: Count = 0
    rows: Count = 0
    curves: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesNote:
    """The files of a trial: result.json, progress.csv with its `rows`, error.txt, and `curves`.

    `curves_at` and `emptied_at` are the numbers in the names of the event file and of the empty
    one before it; 0 if there is none. `usage` is what the attempt has used since its last row.
    """

    trial_id: str
    results: Written
    progress: Written
    rows: Count
    errors: Written
    curves: Written
    curves_at: Sparse[Count] = 0
    emptied_at: Sparse[Count] = 0
    marks: Sparse[Sequence[Mark]] = ()
    usage: Sparse[Mapping[str, float] | None] = None

    @property
    def is_possible(self) -> bool:
        """Whether there are no more rows than bytes, and no marks behind the end of a file."""
        return self.rows <= self.progress.size and all(
            mark.results <= self.results.size
            and mark.rows <= self.rows
            and mark.curves <= self.curves.size
            for mark in self.marks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNotes:
    """The notes of trials whose files were as their records say, and how they were written."""

    shown_as: ClassVar[str] = "the snapshot's notes of files"

    with_curves: bool
    with_config: bool
    trials: Sequence[FilesNote] = ()
