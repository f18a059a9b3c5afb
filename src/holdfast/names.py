"""Checks names that come from a file, a bucket or a socket, and escapes text from outside.

The writer of a journal, a manifest or a listing chooses the names in it. A name that leads out of
its folder would make holdfast write, delete or print other files. So each name is checked when it
is decoded, with these functions only, and text from outside is escaped before it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

LONGEST_NAME = 255  # in bytes, on every file system
_LONGEST_PATH = 4096
_SHOWN_CHARS = 80
_READ_BITS = 1023  # Python may refuse to convert longer integers to decimal text
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+-]{0,199}")
# holdfast's own names in an experiment's folder, which no trial's folder may have.
_OURS = frozenset(
    {
        "journal",
        "control.sock",
        "head.json",
        "nodes.json",
        "tuner.pkl",
        "trainer.pkl",
        "callbacks.msgpack",
        "pbt_global.txt",
    }
)
_OUR_PREFIXES = (
    "experiment_state-",
    "basic-variant-state-",
    "pbt_policy_",
    "tracker-",
    "undelivered-",
)


def is_utf8(text: str) -> bool:
    """True if the text has no lone surrogate, as it has in undecodable file names."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class UnsafeName(ValueError):
    """A name from outside that is not safe as a file name; the message shows it and says why."""


def plain_name(name: object, what: str = "the name") -> str:
    """Return `name` if it is one plain component of a path on every file system.

    Raises UnsafeName.
    """
    if type(name) is str and _SAFE.fullmatch(name):
        return name
    return _checked(name, what)


def node_name(name: object, what: str = "the node") -> str:
    """Return `name` if it is a node's, or "", which is the controller's machine.

    Raises UnsafeName.
    """
    return "" if type(name) is str and not name else plain_name(name, what)


def folder_name(name: object, what: str = "the folder") -> str:
    """Return `name` if a trial's folder may have it: plain, not hidden, not one of holdfast's own.

    Raises UnsafeName.
    """
    checked = plain_name(name, what)
    # File systems on macOS ignore case: `Journal` would be the journal.
    folded = checked.casefold()
    if folded in _OURS or folded.startswith(_OUR_PREFIXES):
        raise UnsafeName(f"{what} {shown(checked)} is a name of holdfast's own files")
    if checked.startswith("."):
        raise UnsafeName(f"{what} {shown(checked)} is hidden, as only holdfast's own files are")
    return checked


def inner_path(path: object, what: str = "the path") -> str:
    """Return `path` if it is relative and stays inside its folder: posix, without `..`.

    Its components may be any names that users can give to files. Raises UnsafeName.
    """
    if type(path) is not str:
        raise UnsafeName(f"{what} must be text, not {shown(path)}")
    if not path or path.startswith("/") or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise UnsafeName(f"{what} {shown(path)} must be a relative path such as 'a/b.json'")
    if "\0" in path or len(path) > _LONGEST_PATH:
        raise UnsafeName(f"{what} {shown(path)} has a zero byte, or is too long for a path")
    return path


def _checked(name: object, what: str) -> str:
    if type(name) is not str:
        raise UnsafeName(f"{what} must be text, not {shown(name)}")
    if name in ("", ".", "..") or "/" in name or "\\" in name:
        raise UnsafeName(f"{what} {shown(name)} must be one plain name: it may hold no slash")
    if not name.isprintable():
        raise UnsafeName(f"{what} {shown(name)} has control characters")
    if len(name.encode()) > LONGEST_NAME:
        raise UnsafeName(f"{what} {shown(name)} has more than {LONGEST_NAME} bytes")
    return name


def printable(text: str, keep: str = "") -> str:
    """`text` with control characters escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def shown(value: Any) -> str:
    """A short, escaped form of a value from outside, for errors. Safe for any value."""
    kind = type(value)
    if kind in (str, bytes):
        cut = "..." if len(value) > _SHOWN_CHARS else ""
        return f"{value[:_SHOWN_CHARS]!r}{cut}"
    if kind is int and value.bit_length() > _READ_BITS:
        return f"an integer of {value.bit_length():,} bits"
    if value is None or kind in (bool, int, float):
        return repr(value)
    if kind in (list, tuple, dict, set, frozenset):
        return f"a {kind.__name__} of {len(value)}"
    return f"a {kind.__name__}"


def listed(items: Sequence[str], most: int, mark: str = ", ") -> str:
    """The first `most` items: `a, b, c and 4 more`."""
    more = len(items) - most
    return mark.join(items[:most]) + (f" and {more:,} more" if more > 0 else "")
