"""What stands above the columns of a table: the end of a name, which tells most of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


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
    cut = [text if len(text) <= width else f"…{text[len(text) - width + 1 :]}" for text in texts]
    alike = Counter([*cut, *taken])
    return [text if alike[short] > 1 else short for text, short in zip(texts, cut, strict=True)]
