"""A small file of the user's that remembers the place that `holdfast ls` listed last.

The completion of a shell reads it, so this imports little.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.dataclass import dataclass

_MOST_NAMES = 2_000
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPlace:
    """A directory or URI, without credentials, and the names of the experiments there."""

    place: str
    names: tuple[str, ...] = ()


def listed_file(environ: Mapping[str, str]) -> Path:
    """`holdfast/listed.json` in the user's folder for states, by the XDG rules."""
    state = environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return folder / "holdfast" / "listed.json"


def read_listed(environ: Mapping[str, str]) -> ListedPlace | None:
    """The place that was listed last; None if there is none, or the file cannot be used."""
    try:
        with open(listed_file(environ), "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home, or nested too deeply
        return None
    match found:
        case {"place": str(place), "names": list(names)} if place.strip():
            known = tuple(name for name in names if isinstance(name, str))
            return ListedPlace(place=place, names=known)
    return None


def note_listed(environ: Mapping[str, str], place: str, names: Sequence[str]) -> None:
    """Remember a place, without credentials, and the names there. A failure does not matter."""
    known = read_listed(environ)
    listed = ListedPlace(place=place, names=tuple(names[:_MOST_NAMES]))
    if listed == known or (not names and (known is None or known.place != place)):
        return
    from holdfast.syncer.files.durable import make_folder, new_file_for, write_all

    data = json.dumps({"place": listed.place, "names": listed.names}).encode()
    with suppress(OSError, RuntimeError):
        path = listed_file(environ)
        make_folder(path.parent, 0o700)
        with new_file_for(path, 0o600) as file:
            write_all(file.fileno(), data)
