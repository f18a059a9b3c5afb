"""Knows which folders of ended trials storage has as they are, so that a publication need not look
at them.

A run of 100,000 trials has 100,000 folders, and each has an index of its own. When a trial has
ended, holdfast writes nothing more into its folder. So the folder is looked at once more, and then
noted in one file, with a word of the controller's about the trial. If the trial runs again, the
word is another one, and the note no longer counts. Neither does it once another machine has owned
the storage.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.syncer.artifacts.plan import ENDED_NAME
from holdfast.syncer.files.durable import replace_file
from holdfast.syncer.files.regular import regular_descriptor
from holdfast.syncer.stores.plain_files import parse_json, read_small

# The file is written anew if it has this many lines that do not count, and more than others.
_STALE_LINES = 1000


class EndedFolders:
    """The folders of ended trials by name, each with its word."""

    def __init__(self, root: Path) -> None:
        self._path = root / ENDED_NAME
        self._since = 0
        self._noted: dict[str, str] = {}
        self._told: dict[str, str] = {}
        # Those to which nothing is added any more.
        self._written: dict[str, str] = {}

    def open(self, since: int) -> None:
        """Read the notes of the range of claims that began with this one. Raises OSError."""
        self._since = since
        lines = [*_read(self._path)]
        self._noted = {folder: word for since_then, folder, word in lines if since_then == since}
        stale = len(lines) - len(self._noted)
        if stale > _STALE_LINES and stale > len(self._noted):
            replace_file(self._path, self._lines(self._noted))

    def tell(self, words: Mapping[str, str]) -> None:
        """The trials of these folders have ended, or run again if the word is ""."""
        self._told.update(words)
        for folder in words:
            self._written.pop(folder, None)

    def tell_written(self, words: Mapping[str, str]) -> None:
        """All files of these trials are written."""
        self._written.update(words)

    def is_whole(self, folder: str) -> bool:
        """Whether storage has the folder as it is."""
        word = self._told.get(folder)
        return bool(word) and self._noted.get(folder) == word

    def unnoted(self) -> dict[str, str]:
        """The folders that will be whole once storage has what a look finds from now on."""
        return {
            name: word for name, word in self._written.items() if self._noted.get(name) != word
        }

    def note(self, words: Mapping[str, str]) -> None:
        """Storage has these folders as they were when the trials had these words.

        It is not forced to the disk: a line that a power cut loses costs another look.
        """
        if not words:
            return
        self._noted |= words
        with suppress(OSError):  # the next run looks at them once more
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = regular_descriptor(self._path, flags)
            with open(descriptor, "ab") as file:
                file.write(self._lines(words))

    def _lines(self, words: Mapping[str, str]) -> bytes:
        """Each begins with a line's end, because a crash may have cut off the line before."""
        return b"".join(_line(self._since, folder, word) for folder, word in words.items())


def _line(since: int, folder: str, word: str) -> bytes:
    text = json.dumps([since, folder, word]).encode()
    return b"\n%08x %s" % (zlib.crc32(text), text)


def _read(path: Path) -> Iterator[tuple[int, str, str]]:
    """The lines that are whole. Raises OSError."""
    try:
        data = read_small(path)
    except FileNotFoundError:
        return
    for line in data.splitlines():
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            continue
        with suppress(ValueError):
            match parse_json(text):
                case [int(since), str(folder), str(word)]:
                    yield since, folder, word
                case _:
                    pass
