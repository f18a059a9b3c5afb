"""The width of text on a terminal, cutting and padding it, and short table headers.   PURE"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence


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


def short_headers(names: Sequence[str], width: int, taken: Sequence[str] = ()) -> list[str]:
    """For each of the `names`, as `net/width`, its last parts: as many as part it from the others
    and from the headers in `taken`. Longer ones are cut from the left to `width`, but none that
    is then like another."""
    parts = [name.split("/") for name in names]
    shown = [1] * len(names)
    while True:
        headers = ["/".join(part[-count:]) for part, count in zip(parts, shown, strict=True)]
        alike = Counter([*headers, *taken])
        longer = [
            count + ((alike[header] > 1 or not header) and count < len(part))
            for part, count, header in zip(parts, shown, headers, strict=True)
        ]
        if longer == shown:
            return cut_apart(headers, width, taken)
        shown = longer


def cut_apart(texts: Sequence[str], width: int, taken: Sequence[str] = ()) -> list[str]:
    """Each text cut from the left to `width`, but none that is then like another."""
    fitted = [
        text if len(text) <= width else f"…{text[len(text) - width + 1 :]}" for text in texts
    ]
    alike = Counter([*fitted, *taken])
    return [text if alike[short] > 1 else short for text, short in zip(texts, fitted, strict=True)]
