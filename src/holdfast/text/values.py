"""Numbers, durations, sizes as text; widths in a terminal, cutting and columns. Pure: no I/O."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from holdfast.names import printable
from holdfast.trial.values import READ_BITS, whole_text


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


def joined(cells: Sequence[str], widths: Sequence[int], right: Collection[int] = ()) -> str:
    """Cells side by side with two spaces between them, right-aligned in the columns `right`."""
    pairs = enumerate(zip(cells, widths, strict=False))
    return "  ".join(
        filled(cell, width, right=at in right) for at, (cell, width) in pairs
    ).rstrip()


def aligned(
    lines: Sequence[Sequence[str]], width: int = 0, *, right: Collection[int] = ()
) -> Iterator[str]:
    """The lines with their cells in columns, right-aligned in those that `right` numbers.

    With a `width`, columns that do not fit are left out, from the last to the third, and a line
    that is still too long is cut.
    """
    widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
    del widths[fitting(widths, width) :]
    for line in lines:
        text = joined(line, widths, right)
        yield cut(text, width) if width else text


def fitting(widths: Sequence[int], width: int) -> int:
    """The number of columns with these `widths` that fit side by side, at least two; all if
    `width` is 0."""
    ends = accumulate(one + 2 for one in widths)
    return sum(not width or end - 2 <= width or at < 2 for at, end in enumerate(ends))


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


def duration(seconds: float) -> str:
    """`0.4s`, `12s`, `1m 20s`, `3h 05m`, `2d 04h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def size(amount_bytes: float) -> str:
    """`812 B`, `12.3 kB`, `12.3 MB`: powers of 1000."""
    amount, unit = float(amount_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.95 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def format_value(value: object, width: int = 20) -> str:
    """A value for a table: numbers with four digits, texts cut to `width` columns."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return cut(printable(" ".join(str(value).split())), width)
    if isinstance(value, int) and abs(value) < 10**12:
        return str(value)
    if isinstance(value, int) and value.bit_length() > READ_BITS:
        return format_value(whole_text(value), width)
    return f"{value:.4g}"


def format_cell(value: object, width: int = 20) -> str:
    """`format_value`, with an empty cell for None."""
    return "" if value is None else format_value(value, width)


def param_cell(params: Mapping[str, object], name: str, width: int = 20) -> str:
    """A parameter for a table: empty if the config does not have it, `None` if it is None."""
    return format_value(params[name], width) if name in params else ""


def printed(text: str) -> list[str]:
    """The lines as a terminal shows them: a progress bar returns to the start and overwrites
    itself."""
    lines = text.removesuffix("\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def skipped_text(count: int) -> str:
    """`... 12 lines not shown here, see its stdout and stderr files`."""
    return f"... {counted(count, 'line', 'lines')} not shown here, see its stdout and stderr files"


def values_text(values: Mapping[str, object]) -> str:
    """`acc=0.9 loss=0.25`."""
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())


def counted(number: int, one: str, many: str) -> str:
    """`1 line`, `12 lines`."""
    return f"{number} {one if number == 1 else many}"
