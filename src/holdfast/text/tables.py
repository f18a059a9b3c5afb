"""Tables as text and HTML. HTML needs no script, and all in it is escaped. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.names import printable
from holdfast.text.values import aligned, width_of

RED, AMBER = "color:#c62828", "color:#b26a00"


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text: columns as wide as their widest cell, numbers right-aligned."""
    columns = list(zip(headers, *rows, strict=True))
    rule = ["-" * max(map(width_of, column)) for column in columns]
    numbers = [at for at, column in enumerate(columns) if all(map(_is_number, column[1:]))]
    return "\n".join(aligned([headers, rule, *rows], right=numbers))


def html_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML."""

    def line(cells: Iterable[str], tag: str) -> str:
        return "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells)

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{line(headers, 'th')}</tr></thead>"
    return f"<table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table>"


def html_facts(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values as an HTML table without a head; a fact without a value is left out."""
    style = ' style="text-align:left;white-space:pre-wrap"'
    lines = [
        f"<tr><th{style}>{_escaped(name)}</th><td{style}>{_escaped(value)}</td></tr>"
        for name, value in facts
        if value
    ]
    return "\n".join(["<table>", "<tbody>", *lines, "</tbody>", "</table>"])


def html_heading(title: str, text: str = "") -> str:
    """A line of HTML with a bold title."""
    return f"<div><b>{_escaped(title)}</b> {_escaped(text)}</div>"


def html_line(text: str, style: str = "") -> str:
    """A line of HTML; empty for an empty text."""
    attribute = f' style="{style}"' if style else ""
    return text and f"<div{attribute}>{_escaped(text)}</div>"


def _escaped(text: str) -> str:
    import html

    return html.escape(printable(text, keep="\n"))


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True
