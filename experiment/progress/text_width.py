"""The width of text in a terminal; cutting, padding, and short table headers. Pure: no I/O."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence


def width_of(text: str) -> int:
    """The columns that `text` takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, with `…` at the end if something was cut."""
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
    """`text` padded with spaces to `width` columns, on the left if `right`."""
    space = " " * max(0, width - width_of(text))
    return space + text if right else text + space


def aligned(lines: Sequence[Sequence[str]], width: int = 0) -> Iterator[str]:
    """The lines with their cells in columns.

    With a `width`, columns that do not fit are left out, from the last to the third, and a line
    that is still too long is cut.
    """
    widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
    while width and len(widths) > 2 and sum(widths) + 2 * (len(widths) - 1) > width:
        widths.pop()
    for line in lines:
        text = "  ".join(map(filled, line, widths)).rstrip()
        yield cut(text, width) if width else text


def _columns(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def short_headers(names: Sequence[str], width: int, taken: Sequence[str] = ()) -> list[str]:
    """The shortest distinct suffix of each of the `names`, such as `net/width`.

    A header has as many trailing parts as distinguish it from the others and from `taken`. Longer
    headers are cut from the left to `width`, unless they would then equal another.
    """
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
    """Each text cut from the left to `width`, unless it would then equal another."""
    fitted = [
        text if len(text) <= width else f"…{text[len(text) - width + 1 :]}" for text in texts
    ]
    alike = Counter([*fitted, *taken])
    return [text if alike[short] > 1 else short for text, short in zip(texts, fitted, strict=True)]
