"""Files to which scripts save searchers themselves, with `Searcher.save`. No run uses them."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace the file as a whole, and make its folder if there is none. Raises OSError."""
    place = Path(path).expanduser()
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(f"{place.name}.tmp{os.getpid()}")
    new.write_bytes(content)
    new.replace(place)


def read(path: str | os.PathLike[str]) -> bytes:
    """Raises OSError."""
    return Path(path).expanduser().read_bytes()


def within(folder: str | os.PathLike[str], name: str) -> str:
    return str(Path(folder).expanduser() / name)


def last_of(folder: str | os.PathLike[str], pattern: str) -> str | None:
    """The last file of this pattern in the order of names; None if there is none."""
    found = sorted(Path(folder).expanduser().glob(pattern))
    return str(found[-1]) if found else None
