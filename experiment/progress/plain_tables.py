"""Formats a table as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text: columns as wide as their widest cell, numbers right-aligned."""
    columns = list(zip(headers, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    signs = [">" if all(map(_is_number, column[1:])) else "<" for column in columns]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            f"{cell:{s}{w}}" for cell, s, w in zip(line, signs, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def html_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML with every cell escaped."""

    def line(cells: Iterable[str], tag: str) -> str:
        return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{line(headers, 'th')}</tr></thead>"
    return f"<table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table>"


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True
