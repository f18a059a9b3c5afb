"""The line protocol of commands: lines that report, and metrics in other output. Pure.

A line of stdout reports if it begins with `holdfast:`, followed by a JSON object or by
`name=value` pairs. Colours, spaces and text before a carriage return are ignored. In the report
file, each line is such an object or such pairs, with or without the prefix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.text.trials import unread_text
from holdfast.trial.errors import InvalidConfig

PREFIX: Final = "holdfast:"
# Longer lines reach the trial's files whole, and are not read as reports.
LONGEST_LINE: Final = 1 << 20
_KEPT_OF_LONG = 1 << 10
_SHOWN = 160
_LONG_S = 10.0
# What torchrun writes before a rank's line with --tee: its role, and its number on this machine.
MARK: Final = "[default${local_rank}]:"
_MARK = re.compile(rb"\[default(\d+)\]:")
_LONGEST_MARK = 16
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CHECKPOINT, _ACK = "checkpoint", "ack"
_NAME = re.compile(r"[^\s=]+")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


class Malformed(ValueError):
    """A line begins like a report and is not one; the message shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The metrics of one line; its checkpoint, and whether the command waits for an answer."""

    metrics: Mapping[str, Any]
    checkpoint: str | None = None
    wants_answer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line without its end; only its beginning, if it is too long."""

    text: bytes
    is_cut: bool = False


class Lines:
    """Splits pieces of output into lines, with bounded memory."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_cut = False

    @property
    def rest(self) -> bytes:
        """The incomplete line."""
        return self._rest

    def feed(self, piece: bytes) -> Iterator[Line]:
        """The lines that are complete with this piece."""
        *lines, rest = piece.split(b"\n")
        for end in lines:
            yield self._line(self._rest + end)
            self._rest, self._is_cut = b"", False
        if not self._is_cut:
            self._rest += rest
        if len(self._rest) > LONGEST_LINE:
            self._rest, self._is_cut = self._rest[:_KEPT_OF_LONG], True

    def end(self) -> Iterator[Line]:
        """The last line, if its end is missing."""
        if self._rest:
            yield self._line(self._rest)
            self._rest = b""

    def _line(self, text: bytes) -> Line:
        is_cut = self._is_cut or len(text) > LONGEST_LINE
        return Line(text=text[:_KEPT_OF_LONG] if is_cut else text, is_cut=is_cut)


class Ranks:
    """Takes apart what the ranks of torchrun print.

    It writes each piece that a rank has printed, which may be a part of a line, after a mark.
    """

    def __init__(self) -> None:
        self._rests: dict[bytes, bytes] = {}
        self._rank = b""
        self._cut = b""

    def feed(self, piece: bytes) -> bytes:
        """The lines that are complete with this piece, and what stands before any mark."""
        text = self._cut + piece
        at = text.rfind(b"[", max(0, len(text) - _LONGEST_MARK))
        is_cut = at >= 0 and b":" not in text[at:]
        text, self._cut = (text[:at], text[at:]) if is_cut else (text, b"")
        first, *marked = _MARK.split(text)
        lines = [self._of(self._rank, first)]
        for self._rank, part in zip(marked[::2], marked[1::2], strict=True):
            lines.append(self._of(self._rank, part))
        return b"".join(lines)

    def end(self) -> bytes:
        """Last lines that have no end."""
        self._rests[self._rank] = self._rests.get(self._rank, b"") + self._cut
        return b"\n".join(filter(None, self._rests.values()))

    def _of(self, rank: bytes, part: bytes) -> bytes:
        text = self._rests.get(rank, b"") + part
        lines = len(text) if not rank or len(text) > LONGEST_LINE else text.rfind(b"\n") + 1
        self._rests[rank] = text[lines:]
        return text[:lines]


def visible(text: bytes) -> str:
    """The visible text of a line, without colours and surrounding spaces."""
    shown = _ESCAPES.sub("", text.decode(errors="replace"))
    return shown.rstrip("\r").rpartition("\r")[2].strip()


def may_report(beginning: bytes) -> bool:
    """True if a line with this beginning may be a report."""
    shown = visible(beginning[:_KEPT_OF_LONG])
    return shown.startswith(PREFIX) or PREFIX.startswith(shown)


def reports(line: Line) -> bool:
    """True if a line of stdout is a report."""
    return visible(line.text).startswith(PREFIX)


def seems_mixed(line: Line) -> bool:
    """True for a report behind other text: of another process, usually."""
    return PREFIX in visible(line.text)


def doubts(unread: int, first_s: float, ran_s: float, rows: int) -> Iterator[str]:
    """Warnings about a command: lines that could not be read, and that the first of
    its rows came after `first_s` of `ran_s` seconds."""
    if unread:
        yield unread_text(unread)
    if rows > 1 and ran_s >= _LONG_S and first_s > 0.9 * ran_s:
        yield (
            f"all {rows:,} reports came at the end, since the command buffers its output: "
            "print(..., flush=True), or append them to $HOLDFAST_REPORT_FILE"
        )


def report_of(line: Line) -> Report:
    """The report in a line, with or without the prefix. Raises Malformed."""
    text = visible(line.text).removeprefix(PREFIX).strip()
    if line.is_cut:
        raise Malformed(f"a report of more than {LONGEST_LINE:,} bytes: {text[:_SHOWN]}...")
    values = _object(text) if text.startswith("{") else _pairs(text)
    checkpoint, wants_answer = values.pop(_CHECKPOINT, None), values.pop(_ACK, False)
    if type(checkpoint) is int:  # a folder for each epoch
        checkpoint = str(checkpoint)
    if checkpoint is not None and (not isinstance(checkpoint, str) or not checkpoint):
        raise _malformed(text, "checkpoint must be the path of a file or a folder")
    if not values:
        raise _malformed(text, "it has no metrics")
    return Report(metrics=values, checkpoint=checkpoint, wants_answer=bool(wants_answer))


def asks_for_answer(line: Line) -> bool:
    """True if a malformed line seems to wait for an answer."""
    return _ACK.encode() in line.text


def _object(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise _malformed(text, f"not JSON ({error})") from error


def _pairs(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if not mark or not _NAME.fullmatch(name):
            raise _malformed(text, f"{word[:40]!r} is not name=value, and there is no JSON object")
        values[name] = value if name == _CHECKPOINT else _value(value)
    return values


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _malformed(text: str, why: str) -> Malformed:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return Malformed(f"{PREFIX} {shown!r}: {why}")


class Extractor:
    """Metrics from lines of a command that cannot report.

    `patterns` maps each metric to a regular expression with one group, a number. A row is complete
    when each metric was found since the last row. Raises InvalidConfig.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = {name: _compiled(name, text) for name, text in patterns.items()}
        self._found: dict[str, float] = {}

    def take(self, line: Line) -> dict[str, float] | None:
        """The row that is complete with this line, if any."""
        if not self._patterns or line.is_cut:
            return None
        shown = visible(line.text)
        for name, pattern in self._patterns.items():
            for found in pattern.finditer(shown):
                value = _number(found[1])
                if value is not None:
                    self._found[name] = value
        if len(self._found) < len(self._patterns):
            return None
        row = {name: self._found[name] for name in self._patterns}
        self._found = {}
        return row

    @property
    def missing(self) -> list[str]:
        """The metrics that the row which has begun still lacks."""
        return [name for name in self._patterns if name not in self._found]


def _compiled(name: str, text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except (re.error, TypeError) as error:
        raise InvalidConfig(
            f"metrics: {name}: {text!r:.100} is not a regular expression: {error}"
        ) from error
    if pattern.groups != 1:
        raise InvalidConfig(
            f"metrics: {name}: {text!r:.100} must have exactly one group, around the number, as "
            f"in 'loss=([-+.eE0-9]+)'; it has {pattern.groups}"
        )
    return pattern


def _number(text: str | None) -> float | None:
    value = _value(text or "")
    return value if type(value) in (int, float) else None
