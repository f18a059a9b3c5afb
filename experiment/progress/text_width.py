"""How wide texts are on a terminal, and how they are cut and filled to a width.   PURE"""

from __future__ import annotations

import unicodedata


def width_of(text: str) -> int:
    """The columns that `text` takes: two for a wide sign, none for one that is combined."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, with `…` at its end where something is left out."""
    if width_of(text) <= width:
        return text
    used, kept = 1, []
    for sign in text:
        used += _columns(sign)
        if used > width:
            break
        kept.append(sign)
    return f"{''.join(kept)}…" if width > 0 else ""


def filled(text: str, width: int, *, right: bool = False) -> str:
    """`text` with spaces up to `width` columns, before it if `right`."""
    space = " " * max(0, width - width_of(text))
    return space + text if right else text + space


def _columns(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1
