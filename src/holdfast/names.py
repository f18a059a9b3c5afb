"""Names that come from a file, a bucket or a socket: which may be used, and how others are shown.

Whoever writes a journal, a manifest or a listing chooses the names in it. A name that leads out
of its folder would make us write, delete or print somebody else's files. So each name is checked
where it is decoded, here and nowhere else, and no text from outside reaches a terminal unescaped.
"""

from __future__ import annotations

import re
from typing import Any

_LONGEST_BYTES = 255
_LONGEST_PATH = 4096
_SHOWN_CHARS = 80
_READ_BITS = 1023  # of a longer integer Python may refuse to make decimal text
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+-]{0,199}")
# What holdfast itself keeps in an experiment's folder: no trial's folder may be called so.
_OURS = frozenset(
    {"journal", "head.json", "tuner.pkl", "trainer.pkl", "callbacks.msgpack", "pbt_global.txt"}
)
_OUR_PREFIXES = (
    "experiment_state-",
    "basic-variant-state-",
    "pbt_policy_",
    "tracker-",
    "undelivered-",
)


class UnsafeName(ValueError):
    """A name from outside that cannot be used as a file's; the message shows it and says why."""


def plain_name(name: object, what: str = "the name") -> str:
    """`name`, which is one plain component of a path on every file system.

    Raises UnsafeName.
    """
    if type(name) is str and _SAFE.fullmatch(name):
        return name
    return _checked(name, what)


def folder_name(name: object, what: str = "the folder") -> str:
    """`name`, which a trial's folder can have: plain, not hidden, and not one of holdfast's own.

    Raises UnsafeName.
    """
    checked = plain_name(name, what)
    # On macOS `Journal` is the journal.
    folded = checked.casefold()
    if folded in _OURS or folded.startswith(_OUR_PREFIXES):
        raise UnsafeName(f"{what} {shown(checked)} is a name of holdfast's own files")
    if checked.startswith("."):
        raise UnsafeName(f"{what} {shown(checked)} is hidden, as only holdfast's own files are")
    return checked


def inner_path(path: object, what: str = "the path") -> str:
    """`path`, which leads from a folder to a file inside of it: relative, posix, without `..`.

    Its components may be anything that a user can call a file. Raises UnsafeName.
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
    if len(name.encode()) > _LONGEST_BYTES:
        raise UnsafeName(f"{what} {shown(name)} has more than {_LONGEST_BYTES} bytes")
    return name


def printable(text: str, keep: str = "") -> str:
    """`text` with every character escaped that could steer a terminal, but for those to `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def shown(value: Any) -> str:
    """A value from outside for an error: short, escaped, and safe to make whatever it is."""
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
