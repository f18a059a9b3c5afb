"""Draws a state diagram of Mermaid's notation as SVG: the library that does so in a browser would
have to be fetched.

A column for each state, and below it one arrow for each transition, with the events above it.
"""

from __future__ import annotations

import re
from html import escape

_TRANSITION = re.compile(r"^\s*(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.*))?$", re.M)
_COLUMN, _ROW, _BOX, _HALF = 132, 34, 28, 56
_OUTSIDE = "[*]"


def with_pictures(markdown: str) -> str:
    """The text with a picture in place of each state diagram."""
    return re.sub(
        r"^```mermaid\nstateDiagram-v2\n(.*?)^```$",
        lambda found: f'<div class="diagram">{svg(found[1])}</div>',
        markdown,
        flags=re.M | re.S,
    )


def svg(diagram: str) -> str:
    """The picture of lines such as `RUNNING --> ERROR: Errored`. An arrow marks the states in
    which a trial begins, a second border those in which it ends."""
    found = _TRANSITION.findall(diagram)
    arrows = [(a, b, events) for a, b, events in found if _OUTSIDE not in (a, b)]
    states = list(dict.fromkeys([a for a, _, _ in arrows] + [b for _, b, _ in arrows]))
    x = {state: (i + 0.5) * _COLUMN for i, state in enumerate(states)}
    ends = {a for a, b, _ in found if b == _OUTSIDE}
    starts = [(b, events) for a, b, events in found if a == _OUTSIDE]
    top = _ROW + _BOX
    width, height = len(states) * _COLUMN, top + (len(arrows) + 1) * _ROW
    parts = []
    for state in states:
        parts.append(_line(x[state], top, x[state], height - _ROW / 2, "lane"))
        parts.append(_box(x[state], 0))
        parts += [_box(x[state], 3)] if state in ends else []
        parts.append(_text(x[state], _ROW + _BOX / 2 + 4, state, "state"))
    for state, events in starts:
        parts.append(_line(x[state], 14, x[state], _ROW - 2, "arrow"))
        parts.append(_text(x[state], 10, events))
    for row, (a, b, events) in enumerate(arrows, 1):
        y = top + row * _ROW
        parts.append(_line(x[a], y, x[b] - (4 if x[b] > x[a] else -4), y, "arrow"))
        parts.append(f'<circle cx="{x[a]}" cy="{y}" r="3"/>')
        parts.append(_text((x[a] + x[b]) / 2, y - 6, events))
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="The states and the transitions between them">{head}{"".join(parts)}</svg>'
    )


def _box(x: float, inset: int) -> str:
    return (
        f'<rect x="{x - _HALF + inset}" y="{_ROW + inset}" width="{2 * (_HALF - inset)}" '
        f'height="{_BOX - 2 * inset}" rx="5"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>'


def _text(x: float, y: float, text: str, kind: str = "event") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'
